#!/bin/sh
# Makes this machine a DaisyChain node: Linux, macOS, WSL. It copies what programs say; the image decides upon it,
# writes .env and secrets/cluster.key, and prints why and the next command (docs/decisions/ tells the reason).
# Run again: changes nothing that was not asked.
set -eu

usage() {
  cat <<'USAGE'
usage: scripts/install.sh [--key KEY] [--network lan|tailnet|host-tailnet] [--variant cpu|cuda] [--name NAME]
                          [--new-chain] [--yes]
  --key        another node's key (`docker compose exec node daisychain key show`); none: this is the first node
  --network    default: tailnet where Docker runs in a virtual machine, else this machine's tailnet, else its LAN
  --variant    default: cuda where an NVIDIA card, its driver and Docker suffice
  --new-chain  make a key though nodes of a chain are seen here
  --yes        ask nothing
DAISYCHAIN_IMAGE=NAME takes that image (pulled where it is not here) instead of building daisychain:cpu.
USAGE
}

root=$(cd "$(dirname "$0")/.." && pwd)
image=${DAISYCHAIN_IMAGE:-daisychain:cpu}
ask=yes
for argument in "$@"; do
  case $argument in
    -h | --help) usage && exit 0 ;;
    --yes | --new-chain | --key | --key=*) ask=no ;;
  esac
done

# Programs that hang (a broken driver, a daemon that starts) are given up on, where the system can.
bounded() {
  if command -v timeout >/dev/null 2>&1; then timeout 20 "$@"; else "$@"; fi
}
fact() { printf '%s=%s\n' "$1" "$(printf '%s' "$2" | tr '\n\r' '  ')"; }
docker_says() { bounded docker "$@" 2>/dev/null || true; }

gpu_facts() {
  command -v nvidia-smi >/dev/null 2>&1 || return 0
  fields=name,memory.total,driver_version
  if said=$(bounded nvidia-smi --query-gpu=$fields,compute_cap --format=csv,noheader,nounits 2>&1) ||
    said=$(bounded nvidia-smi --query-gpu=$fields --format=csv,noheader,nounits 2>&1); then
    printf '%s\n' "$said" | sed 's/^/gpu=/'
  else
    fact gpu_trouble "nvidia-smi failed: $said"
  fi
}

tailscale_facts() {
  command -v tailscale >/dev/null 2>&1 || return 0
  errors=$(mktemp)
  if said=$(bounded tailscale status --json --peers=false 2>"$errors"); then
    fact tailscale "$said"
  else
    fact tailscale_trouble "$(cat "$errors")"
  fi
  rm -f "$errors"
}

owner() { # of a folder: Linux first, then macOS
  stat -c '%u %g' "$1" 2>/dev/null || stat -f '%u %g' "$1"
}

facts() {
  fact os "$(uname -s)"
  fact kernel "$(uname -r)"
  fact machine "$(uname -m)"
  fact host_name "$(hostname 2>/dev/null || uname -n)"
  fact docker "$(docker_says version --format '{{.Server.Version}}')"
  fact docker_os "$(docker_says info --format '{{.OperatingSystem}}')"
  fact docker_runtimes "$(docker_says info --format '{{json .Runtimes}}')"
  fact docker_cdi "$(docker_says info --format '{{json .DiscoveredDevices}}')"
  fact compose "$(docker_says compose version --short)"
  fact uid "${owned_by% *}"
  fact gid "${owned_by#* }"
  gpu_facts
  tailscale_facts
}

if ! command -v docker >/dev/null 2>&1; then
  echo "error: Docker is not installed, and a node runs in it" >&2
  echo "  do: install it (https://docs.docker.com/get-docker/) and run this again; without Docker: make node" >&2
  exit 3
fi
if ! told=$(bounded docker version 2>&1 >/dev/null); then
  echo "error: Docker does not answer this user: $told" >&2
  echo "  do: start Docker; on Linux join its group (sudo usermod -aG docker \$USER, then log in again) or use sudo" >&2
  exit 3
fi

if ! docker image inspect "$image" >/dev/null 2>&1; then
  if [ -n "${DAISYCHAIN_IMAGE:-}" ]; then
    docker pull "$image"
  else
    echo "building $image from Dockerfile.cpu: some minutes, once ..."
    "$root/images/build.sh" cpu --quiet >/dev/null
  fi
fi

if [ "$ask" = yes ] && [ -t 0 ] && [ ! -f "$root/secrets/cluster.key" ]; then
  printf 'Key of the chain to join (Enter: this is the first node): '
  read -r key
  [ -z "$key" ] || set -- "$@" --key "$key"
fi

mkdir -p "$root/jobs"
owned_by=$(owner "$root/jobs")
# As the owner of the jobs folder; root, who can write everywhere, hands the key to the node's user.
facts | docker run --rm --interactive --network host --read-only --cap-drop ALL --cap-add CHOWN --cap-add DAC_OVERRIDE \
  --security-opt no-new-privileges --security-opt label=disable --user "${owned_by% *}:${owned_by#* }" \
  --volume "$root:/install" "$image" install-plan "$@"
