"""The npm package, as `npm pack` makes it: its files, its exports in Node, and its types in a small TypeScript program."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from scripts.paths import NODE_MODULES, ROOT
from scripts.wheel import version


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project that has the packed package in its node_modules, and nothing else."""
    folder = tmp_path_factory.mktemp("npm")
    command = ["npm", "pack", "--silent", "--pack-destination", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=300)
    (archive,) = folder.glob("*.tgz")
    subprocess.run(["tar", "xf", str(archive)], cwd=folder, check=True)
    (folder / "node_modules").mkdir()
    (folder / "package").rename(folder / "node_modules" / "py_gemm")
    (folder / "package.json").write_text('{"type": "module", "private": true}')
    return folder


def test_package_carries_the_same_assets_as_the_wheel(project: Path) -> None:
    root = project / "node_modules" / "py_gemm"
    found = {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}
    shaders = {f"shaders/{path.name}" for path in (ROOT / "shaders").glob("*.wgsl")}
    kernels = {f"py_gemm/cpu/kernels/{path.name}" for path in (ROOT / "py_gemm/cpu/kernels").glob("*.wasm")}
    about = {"package.json", "README.md", "LICENSE", "CHANGELOG.md"}
    types = {"types/index.d.ts", "types/bridge.d.ts"}
    assert shaders
    assert kernels
    assert found == shaders | kernels | about | types | {"web/index.js", "web/bridge.js", "web/thread.js"}
    for name in shaders | kernels | {"web/bridge.js", "web/thread.js"}:
        assert (root / name).read_bytes() == (ROOT / name).read_bytes()


def test_exports_resolve_in_node(project: Path) -> None:
    shader = next((ROOT / "shaders").glob("*.wgsl")).name
    kernel = next((ROOT / "py_gemm/cpu/kernels").glob("*.wasm")).name
    script = f"""
        import {{ existsSync }} from "node:fs";
        import {{ fileURLToPath }} from "node:url";
        const main = await import("py_gemm");
        const bridge = await import("py_gemm/bridge");
        const files = ["py_gemm/shaders/{shader}", "py_gemm/kernels/{kernel}", "py_gemm/package.json"];
        const there = files.map((name) => existsSync(fileURLToPath(import.meta.resolve(name))));
        console.log(JSON.stringify([typeof main.loadPyGemm, main.BRIDGE_MODULE, Object.keys(bridge).length > 0, there]));
    """
    (project / "use.mjs").write_text(script)
    done = subprocess.run(["node", "use.mjs"], cwd=project, check=True, capture_output=True, text=True)
    assert json.loads(done.stdout) == ["function", "py_gemm_bridge", True, [True, True, True]]


def test_inner_files_are_not_exported(project: Path) -> None:
    done = subprocess.run(
        ["node", "-e", "import('py_gemm/web/bridge.js')"], cwd=project, check=False, capture_output=True, text=True
    )
    assert "ERR_PACKAGE_PATH_NOT_EXPORTED" in done.stderr


def test_types_serve_a_strict_program(project: Path) -> None:
    program = """
        import { loadPyGemm, installWheel, bridge, type PyodideLike } from "py_gemm";
        import * as same from "py_gemm/bridge";
        declare const pyodide: PyodideLike;
        const done: Promise<void> = loadPyGemm(pyodide, { wheel: "wheels/py_gemm.whl" });
        const equal: boolean = bridge === same;
        export { done, equal, installWheel };
    """
    assert _complaints(project, program) == ""
    assert "wheel" in _complaints(project, program.replace("{ wheel:", "{ whee:"))


def _complaints(project: Path, program: str) -> str:
    (project / "use.ts").write_text(program)
    options = ["--noEmit", "--strict", "--module", "nodenext", "--lib", "es2023,dom", "--types", "", "--target", "es2023", "use.ts"]
    compiler = str(NODE_MODULES / "typescript" / "bin" / "tsc")
    return subprocess.run(["node", compiler, *options], cwd=project, check=False, capture_output=True, text=True).stdout


def test_versions_agree() -> None:
    assert json.loads((ROOT / "package.json").read_text())["version"] == version()
    lock = json.loads((ROOT / "package-lock.json").read_text())
    assert lock["version"] == lock["packages"][""]["version"] == version()
