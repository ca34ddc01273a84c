"""A stand-in for Debian's base image, bootstrapped with this machine's own package sources.

For machines that reach Debian's packages and no image registry. The Dockerfiles build on it unchanged.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

RELEASE = "bookworm"
BOOTSTRAP_S = 300.0
NOT_NEEDED = (
    "var/cache/apt/archives",
    "var/lib/apt/lists",
    "usr/share/doc",
    "usr/share/man",
    "usr/share/locale",
)
AUTHORITIES = Path("etc/ssl/certs/ca-certificates.crt")


def bootstrap(folder: Path, pip_conf: str) -> None:
    """Fill ``folder`` with a small Debian whose apt and pip look where this machine's do."""
    sources = _sources()
    mirror = next(url for url, suite, _ in sources if suite == RELEASE)
    subprocess.run(
        ["debootstrap", "--variant=minbase", "--include=ca-certificates", RELEASE, str(folder), mirror],
        check=True,
        capture_output=True,
        timeout=BOOTSTRAP_S,
    )
    for name in NOT_NEEDED:
        shutil.rmtree(folder / name, ignore_errors=True)
    (folder / "var/cache/apt/archives/partial").mkdir(parents=True)
    lines = (f"deb {url} {suite} {part}\n" for url, suite, part in sources)
    (folder / "etc/apt/sources.list").write_text("".join(lines))
    for extra in Path("/etc/apt/apt.conf.d").iterdir():  # a proxy, or a mirror whose dates are old
        if any(word in extra.read_text() for word in ("Proxy", "Acquire::Check")):
            shutil.copy(extra, folder / "etc/apt/apt.conf.d" / extra.name)
    shutil.copy(Path("/") / AUTHORITIES, folder / AUTHORITIES)
    (folder / "etc/pip.conf").write_text(pip_conf)


def _sources() -> list[tuple[str, str, str]]:
    """Return (address, suite, component) of what this machine has of the release."""
    told = subprocess.run(
        ["apt-cache", "policy"], check=True, capture_output=True, text=True, timeout=60
    ).stdout
    found = re.findall(rf"^\s*\d+ (\S+) ({RELEASE}[\w-]*)/(main) ", told, re.MULTILINE)
    if not any(
        suite == RELEASE for _, suite, _ in found
    ):  # another Debian: its mirror has the older release too
        mirror = re.findall(r"^\s*\d+ (\S+/debian) [\w-]+/main ", told, re.MULTILINE)
        found = [(url, RELEASE, "main") for url in mirror[:1]]
    return list(dict.fromkeys(found))
