"""`npm run lint`: ruff (rules and format), mypy --strict, and tsc over the JSDoc types. Changes nothing; `--fix` lets ruff mend."""

from __future__ import annotations

import subprocess
import sys

from .paths import NODE_MODULES, ROOT


def main(words: list[str]) -> int:
    """Run every linter, even after one complains; the exit status is 1 where any did."""
    fix = "--fix" in words
    compiler = str(NODE_MODULES / "typescript" / "bin" / "tsc")
    python = [sys.executable, "-m"]
    commands = [
        [*python, "ruff", "check", *(["--fix"] if fix else []), "."],
        [*python, "ruff", "format", *([] if fix else ["--check"]), "."],
        [*python, "mypy"],
        *(["node", compiler, "--project", project] for project in ("tsconfig.json", "tsconfig.node.json")),
    ]
    failed = []
    for command in commands:
        print("+", " ".join(command).replace(f"{ROOT}/", ""), flush=True)
        if subprocess.run(command, cwd=ROOT, check=False).returncode != 0:
            failed.append(command)
    for command in failed:
        print("failed:", " ".join(command), file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
