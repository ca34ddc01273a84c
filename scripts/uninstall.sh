#!/bin/sh
# Takes this machine's node away: containers, its volume (runs, checkpoints, Tailscale's login), its images, .env and
# the key. jobs/ stays, results included. usage: scripts/uninstall.sh [--yes]
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
  images=$(docker compose config --images 2>/dev/null || true)
  if ! docker compose down --volumes --remove-orphans; then
    echo "error: docker compose down failed: .env and secrets/ are left, so that this can be run again" >&2
    exit 1
  fi
  # Ours alone: Tailscale's may serve others here. daisychain:cpu decided upon the installation, whatever ran.
  for image in $(printf '%s\ndaisychain:cpu\n' "$images" | sort -u); do
    title=$(docker image inspect --format '{{index .Config.Labels "org.opencontainers.image.title"}}' "$image" 2>/dev/null) ||
      continue
    [ "$title" != DaisyChain ] || docker image rm "$image" >/dev/null || echo "the image $image is left: something uses it" >&2
  done
fi
rm -f .env secrets/cluster.key
rmdir secrets 2>/dev/null || true
echo "removed. Kept: $root/jobs, with your jobs and their results"
