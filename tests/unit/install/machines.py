"""Machines as an installer tells them."""

from __future__ import annotations

GTX_970 = "NVIDIA GeForce GTX 970, 4096, 535.183.01, 5.2"
K80 = "Tesla K80, 11441, 470.82.01"
OLD_DRIVER = "NVIDIA GeForce GTX 970, 4096, 470.82.01, 5.2"
FERMI = "GeForce GT 430, 1024, 535.1, 2.1"
RTX_5090 = "NVIDIA GeForce RTX 5090, 32607, 580.95.05, 12.0"
RTX_5090_OLD = "NVIDIA GeForce RTX 5090, 32607, 572.16, 12.0"

SYSTEMS = {
    "linux": "os=Linux\nkernel=6.1.0-9-amd64",
    "wsl": "os=Linux\nkernel=5.15.153.1-microsoft-standard-WSL2",
    "macos": "os=Darwin\nkernel=24.1.0",
    "windows": "os=Windows",
}
UP = '"BackendState": "Running", "Self": {"TailscaleIPs": ["100.64.0.9"]}'
TAILSCALES = {
    "absent": "",
    "down": "tailscale_trouble=failed to connect to local tailscaled; it doesn't appear to be running",
    "logged-out": 'tailscale={"BackendState": "NeedsLogin"}',
    "userspace": f'tailscale={{{UP}, "TUN": false}}',
    "up": f'tailscale={{{UP}, "TUN": true}}',
}


def machine(
    system: str = "linux",
    desktop: bool = False,
    gpus: tuple[str, ...] = (),
    toolkit: bool = False,
    tailscale: str = "absent",
    more: str = "",
) -> str:
    """Return the facts of a machine; the lines ``more`` win."""
    return "\n".join(
        [
            SYSTEMS[system],
            "machine=x86_64",
            "host_name=attic",
            "docker=28.2.2",
            "compose=v2.26.1-4",
            f"docker_os={'Docker Desktop' if desktop else 'Debian GNU/Linux 12'}",
            f'docker_runtimes={{"runc": {{}}{", " if toolkit else ""}{"nvidia: {}" if toolkit else ""}}}',
            "uid=1000",
            "gid=1001",
            *(f"gpu={gpu}" for gpu in gpus),
            TAILSCALES[tailscale],
            more,
        ]
    )
