#!/bin/sh
# Takes this machine's node away: containers, its volume (runs, checkpoints, Tailscale's login), images, .env and the
# key. jobs/ stays, results included. usage: scripts/uninstall.sh [--yes]
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"

case ${1:-} in
  --yes) ;;
  "")
    printf 'Remove the node, its checkpoints, its images, .env and the cluster key from this machine? jobs/ stays. [y/N] '
    read -r answer || answer=
    case $answer in y | Y | yes) ;; *) echo "nothing was removed" && exit 1 ;; esac
    ;;
  *) echo "usage: scripts/uninstall.sh [--yes]" && exit 2 ;;
esac

if command -v docker >/dev/null 2>&1; then
  # before .env goes: it says what was started
  if ! docker compose down --volumes --remove-orphans --rmi all; then
    echo "error: docker compose down failed: .env and secrets/ are left, so that this can be run again" >&2
    exit 1
  fi
  # the image that decided upon the installation, where another one ran
  docker image rm daisychain:cpu >/dev/null 2>&1 || true
fi
rm -f .env secrets/cluster.key
rmdir secrets 2>/dev/null || true
echo "removed. Kept: $root/jobs, with your jobs and their results"
