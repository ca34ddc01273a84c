#!/bin/sh
# Builds daisychain:FLAVOUR from Dockerfile.FLAVOUR with the builder that this machine's Docker has.
# usage: build.sh cpu|cuda [FLAGS OF `docker build`]
set -eu
cd "$(dirname "$0")/.."
flavour=$1
shift

fail() {
  echo "error: $1" >&2
  echo "  do: $2" >&2
  exit 3
}
command -v docker >/dev/null 2>&1 || fail "Docker is not installed" "install it (https://docs.docker.com/get-docker/)"
told=$(docker version --format '{{.Client.Version}}' 2>&1) ||
  fail "Docker does not answer this user: $told" "start Docker; on Linux join its group, or use sudo"

# BuildKit came in the client itself until 22, and as the plugin buildx since. Without either the old builder does.
if docker buildx version >/dev/null 2>&1 || [ "${told%%.*}" -lt 23 ] 2>/dev/null; then
  export DOCKER_BUILDKIT=1
else
  echo "this Docker has no buildx: building with its old builder, which is slower (Debian: apt install docker-buildx)" >&2
  export DOCKER_BUILDKIT=0
fi
exec docker build --file "Dockerfile.$flavour" --tag "daisychain:$flavour" "$@" .
