"""Make the environment of the wild corpus with uv: `python benchmarks/wild/environment.py FOLDER`.

Run it with the Python of Fairway's own environment. Its packages, torch among them, are shared with the new one through
a .pth file, and kept out of what uv resolves. So requirements.txt has only what the new environment adds.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path
from sysconfig import get_path

HERE = Path(__file__).parent
NEVER = "sys_platform == 'never'"
ABSENT = ("torchvision", "torchaudio", "triton", "typing")
"""Packages that others ask for: two whose builds are for CUDA, and two that a CPU and this Python do without."""


def main() -> None:
    folder = Path(sys.argv[1]).resolve()
    subprocess.run(["uv", "venv", "--python", sys.executable, folder], check=True)
    site = next(folder.glob("lib/python*/site-packages"))
    (site / "base.pth").write_text(get_path("purelib") + "\n")
    shared = {distribution.metadata["Name"] for distribution in distributions()} - {"pip", "setuptools"}
    overrides = folder / "overrides.txt"
    overrides.write_text("".join(f"{name} ; {NEVER}\n" for name in sorted(shared | {*ABSENT})))
    install = ["uv", "pip", "install", "--python", folder]
    subprocess.run([*install, "--override", overrides, "-r", HERE / "requirements.txt"], check=True)
    # The last torchvision whose Python part works without its library, and torchaudio, whose libraries need CUDA.
    subprocess.run([*install, "--no-deps", "torchvision==0.15.2", "torchaudio==2.11.0"], check=True)
    shutil.rmtree(site / "torchaudio" / "lib")


if __name__ == "__main__":
    main()
