"""What pyproject.toml cannot say: in a wheel all packages lie inside `trnqc`, and README has no links into a checkout.

In a checkout `nki_kernels` and `autotune` are packages of their own beside `trnqc`, which shows that kernels depend on
nothing but their language, and that nothing depends on the search. In the environments of users these names may belong
to other packages. A wheel therefore has them as `trnqc.nki_kernels` and `trnqc.autotune`, with the imports changed
accordingly. An editable installation is the checkout and keeps its names.
"""

import re
import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

MOVED = ("nki_kernels", "autotune")
# Import statements, and names of modules as text, which are imported when first used.
_NAMES = re.compile(rf'^([ \t]*from |.*")(?=(?:{"|".join(MOVED)})[. ])', re.MULTILINE)

# Links of Markdown to files of the checkout.
_PICTURE = re.compile(r"!\[[^\]]*\]\((?!https?:)[^)]+\)\n*")
_LINK = re.compile(r"\[([^\]]+)\]\((?!https?:)([^)]+)\)")


class BuildPy(build_py):
    """Copy the packages, then move and rename."""

    def run(self) -> None:
        if not self.editable_mode:
            # What an earlier build has left there may have been moved or deleted since.
            shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()
        if not self.editable_mode:
            move(Path(self.build_lib))
            # One name on the import path; written when the packages were listed.
            (Path(self.get_finalized_command("egg_info").egg_info) / "top_level.txt").write_text("trnqc\n")


def move(root: Path) -> None:
    """Move the packages of a build into trnqc, and change their names in all modules."""
    for name in MOVED:
        (root / name).rename(root / "trnqc" / name)
    for path in (root / "trnqc").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if (changed := _NAMES.sub(r"\1trnqc.", text)) != text:
            path.write_text(changed, encoding="utf-8")


def readme() -> str:
    """README.md without pictures and with the names of files in place of links to them.

    Links of a checkout lead nowhere on the page of an index.
    """
    text = _PICTURE.sub("", Path("README.md").read_text(encoding="utf-8"))
    return _LINK.sub(lambda link: link[1] if link[1] == link[2] else f"{link[1]} (`{link[2]}`)", text)


setup(cmdclass={"build_py": BuildPy}, long_description=readme(), long_description_content_type="text/markdown")
