# Makes this Windows machine a DaisyChain node (Docker Desktop). It copies what programs say; the image decides upon
# it, as for scripts/install.sh, whose flags these are: --key --network --variant --name --new-chain --yes
$root = (Resolve-Path "$PSScriptRoot\..").Path
$image = if ($env:DAISYCHAIN_IMAGE) { $env:DAISYCHAIN_IMAGE } else { 'daisychain:cpu' }
$flags = @($args)

docker version *> $null
if (-not $?) {
  Write-Host 'error: Docker Desktop is not installed, or not started'
  Write-Host '  do: install it (https://docs.docker.com/get-docker/), start it, and run this again'
  exit 3
}
docker image inspect $image *> $null
if (-not $?) {
  if ($env:DAISYCHAIN_IMAGE) { docker pull $image }
  else { docker build --quiet --file "$root\Dockerfile.cpu" --tag $image $root }
  if (-not $?) { exit 3 }
}
if (-not ($flags -match '^--(key|yes|new-chain)') -and -not (Test-Path "$root\secrets\cluster.key")) {
  $key = Read-Host 'Key of the chain to join (Enter: this is the first node)'
  if ($key) { $flags += @('--key', $key) }
}
$facts = @(
  'os=Windows', 'machine=x86_64', "host_name=$env:COMPUTERNAME",
  "docker=$(docker version --format '{{.Server.Version}}')",
  "docker_os=$(docker info --format '{{.OperatingSystem}}')",
  "compose=$(docker compose version --short)"
)
if (Get-Command nvidia-smi -ErrorAction SilentlyContinue) {
  $facts += nvidia-smi --query-gpu=name,memory.total,driver_version,compute_cap --format=csv,noheader,nounits |
    ForEach-Object { "gpu=$_" }
}
New-Item -ItemType Directory -Force "$root\jobs" | Out-Null
$facts | docker run --rm --interactive --read-only --cap-drop ALL --cap-add CHOWN --cap-add DAC_OVERRIDE `
  --security-opt no-new-privileges --user 0:0 --volume "${root}:/install" $image install-plan @flags
exit $LASTEXITCODE
