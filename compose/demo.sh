#!/bin/bash
# Three nodes in containers train the digits; the coordinator's container is killed on the way. `make demo-docker`.
# Progress goes to standard error, the report (as of `daisychain demo --json`) to standard output.
set -euo pipefail
cd "$(dirname "$0")"
read -ra compose <<< "${COMPOSE:-docker compose}"
demo() { "${compose[@]}" --file demo.yaml --profile watch "$@"; }

cleanup() { demo down --volumes --timeout 5 >&2; }
trap cleanup EXIT
cleanup
demo up --detach ada bob cleo >&2

demo run --rm --no-deps -T watcher < /dev/null | while read -r line; do
  case $line in
    "kill "*)
      demo kill "${line#kill }" >&2
      echo "killed ${line#kill }, the coordinator" >&2
      ;;
    *) printf '%s\n' "$line" ;;
  esac
done
