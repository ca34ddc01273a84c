#!/bin/bash
# Removes from a virtual environment what only a compiler or a debugger would read, and compiles what a node imports.
# usage: slim-libraries.sh VENV
set -euo pipefail
packages=("$1"/lib/python3*/site-packages)
torch=${packages[0]}/torch

rm -rf "$torch"/{test,include,share}
find "$torch/bin" -type f ! -name torch_shm_manager -delete
find "${packages[0]}" -name '*.pyi' -delete
find "${packages[0]}"/{sympy,mpmath,networkx,numpy} -type d -name tests -prune -exec rm -rf {} +
find "${packages[0]}" -type d -name __pycache__ -prune -exec rm -rf {} +

# pip has done its work.
rm -rf "${packages[0]}"/{pip,setuptools,pip-*,setuptools-*,pkg_resources,_distutils_hack,distutils-precedence.pth} "$1"/bin/pip*

# Only these two carry much that nothing reads; numpy's libraries do not survive it.
strip --strip-unneeded "$torch"/lib/libtorch_cpu.so "$torch"/lib/libtorch_python.so

# The root file system is read-only, so what is not compiled here is compiled at every start. Only what a node imports
# is: the bytecode of everything would take 150 MB. It shows, too, that what is left still works.
"$1/bin/python" - <<'PYTHON'
import aiohttp.web, cryptography.hazmat.primitives.kdf.hkdf, cryptography.hazmat.primitives.serialization  # noqa: E401
import cryptography.x509, msgspec, psutil, rich.live, rich.progress_bar, rich.table  # noqa: E401
import safetensors.torch, tenacity, typer, yaml, zeroconf.asyncio  # noqa: E401
import numpy.random, numpy.typing, torch, torch.distributed, torch.utils.data  # noqa: E401

assert torch.distributed.is_gloo_available()
assert torch.nn.Conv2d(1, 2, 3)(torch.ones(1, 1, 5, 5)).shape == (1, 2, 3, 3)
print("torch", torch.__version__, "with", *torch.cuda.get_arch_list())
PYTHON
