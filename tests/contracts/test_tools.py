"""Tests of tools/get-browser.sh on simulated machines."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "tools/get-browser.sh"
BROWSER = "#!/bin/bash\nexit 0\n"
STUB = "#!/bin/bash\necho install the snap >&2\nexit 10\n"
APT = """\
#!/bin/bash
echo "$1" >> {here}/asked
[ "$1" = update ] && {{ echo > {here}/lists; exit 0; }}
[ -e {here}/lists ] || exit 100
printf '{browser}' > {here}/bin/chromium; /bin/chmod 755 {here}/bin/chromium
"""


class Machine:
    """A folder of programs that stands for the whole machine."""

    def __init__(self, here: Path) -> None:
        self.here = here
        (here / "bin").mkdir()

    def put(self, name: str, text: str) -> None:
        (self.here / "bin" / name).write_text(text)
        (self.here / "bin" / name).chmod(0o755)

    def run(self) -> tuple[list[str], str]:
        """Return the packages that apt-get was called with, and the output."""
        path = {"PATH": str(self.here / "bin")}
        done = subprocess.run(["/bin/bash", SCRIPT], env=path, capture_output=True, text=True)
        assert done.returncode == 0
        asked = self.here / "asked"
        return asked.read_text().split() if asked.exists() else [], done.stderr


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    one = Machine(tmp_path)
    one.put("id", "#!/bin/bash\necho 0\n")
    one.put("apt-get", APT.format(here=tmp_path, browser=BROWSER.replace("\n", "\\n")))
    return one


def test_a_browser_that_is_there_is_left_alone(machine: Machine) -> None:
    machine.put("google-chrome", BROWSER)
    assert machine.run() == ([], "")


def test_a_new_machine_gets_its_lists_first(machine: Machine) -> None:
    assert machine.run() == (["install", "update", "install"], "")
    assert (machine.here / "bin/chromium").exists()


def test_a_machine_with_lists_gets_chromium_at_once(machine: Machine) -> None:
    (machine.here / "lists").touch()
    assert machine.run() == (["install"], "")


def test_a_stub_is_no_browser(machine: Machine) -> None:
    machine.put("chromium-browser", STUB)
    assert machine.run() == (["install", "update", "install"], "")


def test_where_nothing_can_be_installed_that_is_said_and_is_no_error(machine: Machine) -> None:
    machine.put("id", "#!/bin/bash\necho 1000\n")
    asked, said = machine.run()
    assert (asked, "no way to install it" in said) == ([], True)
    machine.put("id", "#!/bin/bash\necho 0\n")
    machine.put("apt-get", "#!/bin/bash\nexit 100\n")
    assert "could not install" in machine.run()[1]
