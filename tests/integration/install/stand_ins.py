"""A copy of the scripts on a machine whose docker, uname, nvidia-smi and tailscale are stand-ins."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

REPOSITORY = Path(__file__).parents[3]

DOCKER = """#!/bin/sh
# Docker, as far as the scripts ask it. Everything asked is in $STAND_IN/asked.
echo "$*" >> "$STAND_IN/asked"
say() { cat "$STAND_IN/$1" 2>/dev/null; }
case "$1 $2" in
  "version "*)
    [ -s "$STAND_IN/server" ] || { echo "permission denied on the socket" >&2; exit 1; }
    [ "$2" != --format ] || say server ;;
  "info --format") case $3 in *Operating*) say system ;; *Runtimes*) say runtimes ;; *) echo null ;; esac ;;
  "compose version") [ -s "$STAND_IN/compose" ] || exit 125; say compose ;;
  "compose config") say images ;;
  "compose down") exit "$(cat "$STAND_IN/down")" ;;
  "image inspect")
    [ -e "$STAND_IN/image" ] || exit 1
    case "$4 $5" in *Labels*tailscale*) ;; *Labels*) echo DaisyChain ;; esac ;;
  "buildx version") [ -e "$STAND_IN/buildx" ] ;;
  "build "* | "pull "*)
    echo "with DOCKER_BUILDKIT=${DOCKER_BUILDKIT:-unset}" >> "$STAND_IN/asked"
    : > "$STAND_IN/image" ;;
  "run "*)
    cat > "$STAND_IN/facts"
    while [ "$1" != install-plan ]; do shift; done
    shift
    set -- --folder "$ROOT" --interface "$INTERFACE" "$@"
    exec "$PYTHON" -m daisychain.cli install-plan "$@" < "$STAND_IN/facts" ;;
esac
"""
UNAME = """#!/bin/sh
case $1 in -s) echo "$SYSTEM" ;; -r) echo "$KERNEL" ;; -m) echo x86_64 ;; esac
"""
NVIDIA_SMI = """#!/bin/sh
# As one before 510 where $STAND_IN/gpus names three fields: it does not know compute_cap.
case $* in *compute_cap*)
  [ ! -e "$STAND_IN/old-smi" ] || { echo 'Field "compute_cap" is not valid'; exit 2; } ;;
esac
cat "$STAND_IN/gpus"
exit "$(cat "$STAND_IN/smi-code")"
"""
TAILSCALE = """#!/bin/sh
cat "$STAND_IN/tailscale"
exec sh -c "$(cat "$STAND_IN/tailscale-end")"
"""
TOOLS = (
    "sh",
    "cat",
    "sed",
    "tr",
    "mktemp",
    "rm",
    "rmdir",
    "mkdir",
    "stat",
    "hostname",
    "dirname",
    "timeout",
    "tail",
    "sort",
)


@dataclass
class StandIn:
    """A machine. What is None or empty is not installed."""

    root: Path
    system: str = "Linux"
    kernel: str = "6.1.0-9-amd64"
    docker_system: str = "Debian GNU/Linux 12 (bookworm)"
    server: str | None = "28.2.2"
    compose: str = "v2.26.1"
    toolkit: bool = False
    gpus: str | None = None
    smi_code: int = 0
    tailscale: str | None = None
    tailscale_end: str = "exit 0"
    down_code: int = 0
    image: bool = True
    buildx: bool = True
    interface: str = "nowhere"  # other tests announce nodes on the loopback
    more: dict[str, str] = field(default_factory=dict)

    def set_up(self) -> StandIn:
        """Write the copy and the stand-ins."""
        for folder in ("scripts", "images"):
            shutil.copytree(REPOSITORY / folder, self.root / "copy" / folder)
        self.programs.mkdir()
        for tool in TOOLS:
            if found := shutil.which(tool):
                (self.programs / tool).symlink_to(found)
        self._program("uname", UNAME)
        if self.server is not None:
            self._program("docker", DOCKER)
        if self.gpus is not None:
            self._program("nvidia-smi", NVIDIA_SMI)
        if self.tailscale is not None:
            self._program("tailscale", TAILSCALE)
        runtimes = '{"nvidia": {}, "runc": {}}' if self.toolkit else '{"runc": {}}'
        for name, text in {
            "server": self.server or "",
            "compose": self.compose,
            "system": self.docker_system,
            "runtimes": runtimes,
            "gpus": self.gpus or "",
            "smi-code": str(self.smi_code),
            "tailscale": self.tailscale or "",
            "tailscale-end": self.tailscale_end,
            "down": str(self.down_code),
            "images": "daisychain:cuda\ntailscale/tailscale:v1\ndaisychain:cuda\n",
        }.items():
            (self.root / name).write_text(text)
        if self.gpus and self.gpus.count(",") == 2:
            (self.root / "old-smi").touch()
        for there in ("image", "buildx"):
            if getattr(self, there):
                (self.root / there).touch()
        return self

    @property
    def programs(self) -> Path:
        """The only folder in PATH."""
        return self.root / "bin"

    @property
    def copy(self) -> Path:
        """The copy of the repository's folder."""
        return self.root / "copy"

    def run(self, script: str, *flags: str) -> subprocess.CompletedProcess[str]:
        """Run one of the scripts: of `scripts/`, or named with its folder."""
        environment = {
            "PATH": str(self.programs),
            "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
            "STAND_IN": str(self.root),
            "ROOT": str(self.copy),
            "PYTHON": sys.executable,
            "SYSTEM": self.system,
            "KERNEL": self.kernel,
            "INTERFACE": self.interface,
            **self.more,
        }
        return subprocess.run(
            ["sh", str(self.copy / script if "/" in script else self.copy / "scripts" / script), *flags],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def asked(self) -> str:
        """Return what docker was asked, a line each."""
        file = self.root / "asked"
        return file.read_text() if file.exists() else ""

    def _program(self, name: str, text: str) -> None:
        (self.programs / name).write_text(text)
        (self.programs / name).chmod(0o755)
