#!/bin/sh
# Runs an agent without a container, with what .env and secrets/cluster.key say (`make node`).
# usage: scripts/node.sh DAISYCHAIN [FLAGS OF `daisychain node`]
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
program=$1
shift

setting() { # the last line of that name in .env, without quotes
  [ -f "$root/.env" ] || return 0
  sed -n "s/^$1=//p" "$root/.env" | tail -n 1 | sed "s/^'\(.*\)'\$/\1/; s/^\"\(.*\)\"\$/\1/"
}

# The command line's own flags come after these and win.
for pair in name=NAME network=NETWORK seeds=SEEDS port=PORT interface=INTERFACE log-level=LOG_LEVEL; do
  value=$(setting "DAISYCHAIN_${pair#*=}")
  [ -z "$value" ] || set -- "--${pair%=*}=$value" "$@"
done
[ ! -f "$root/secrets/cluster.key" ] || set -- "--key-file=$root/secrets/cluster.key" "$@"
exec "$program" node --jobs-folder="$root/jobs" "$@"
