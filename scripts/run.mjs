// Starts every command of package.json: finds Python, makes .venv, installs the pinned requirements and the npm packages, then
// hands over to `python -m scripts.COMMAND`. When all of that is already there it touches no network and costs milliseconds.
// It never installs into the system's own Python, and asks for nothing that it can find.

import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const ROOT = dirname(dirname(fileURLToPath(import.meta.url)));
const VENV = join(ROOT, ".venv");
const WINDOWS = process.platform === "win32";
const VENV_PYTHON = WINDOWS ? join(VENV, "Scripts", "python.exe") : join(VENV, "bin", "python");

/** Which requirements each command needs: the demo does without the compilers and test tools. */
const REQUIREMENTS = /** @type {const} */ ({
  start: ["requirements-build.txt"],
  build: ["requirements-build.txt"],
  test: ["requirements-build.txt", "requirements-dev.txt"],
  soak: ["requirements-build.txt", "requirements-dev.txt"],
  lint: ["requirements-build.txt", "requirements-dev.txt"],
  bench: ["requirements-build.txt", "requirements-dev.txt"],
  kernels: ["requirements-build.txt", "requirements-dev.txt"],
});

/**
 * @param {string} message
 * @returns {never}
 */
function fail(message) {
  console.error(`py_gemm: ${message}`);
  process.exit(1);
}

/** @param {string} message */
function say(message) {
  console.error(`py_gemm: ${message}`);
}

/**
 * Run a program and pass its output through; returns its exit status (127 where it cannot be started).
 * @param {string} program
 * @param {readonly string[]} words
 */
function run(program, words) {
  const done = spawnSync(program, words, { cwd: ROOT, stdio: "inherit", shell: WINDOWS && program === "npm" });
  return done.status ?? 127;
}

/** The first Python of at least 3.11 on the path. */
function findPython() {
  const names = ["python3", "python3.14", "python3.13", "python3.12", "python3.11", "python"];
  for (const name of names) {
    const probe = "import sys; print(sys.executable if sys.version_info >= (3, 11) else '')";
    const found = spawnSync(name, ["-c", probe], { encoding: "utf8" }).stdout?.trim();
    if (found) {
      return found;
    }
  }
  return fail(`Python 3.11 or newer is needed; none of these is: ${names.join(", ")}`);
}

/** @param {string} python */
function makeEnvironment(python) {
  say(`making .venv with ${python}`);
  rmSync(VENV, { recursive: true, force: true });
  const probe = spawnSync(python, ["-c", "import ensurepip, venv"], { encoding: "utf8" });
  if (probe.status !== 0) {
    installVenv(python);
  }
  if (run(python, ["-m", "venv", VENV]) !== 0) {
    rmSync(VENV, { recursive: true, force: true });
    fail(`${python} -m venv ${VENV} failed`);
  }
}

/**
 * Debian and Ubuntu keep venv and ensurepip in a package of its own.
 * @param {string} python
 */
function installVenv(python) {
  const version = spawnSync(python, ["-c", "import sys; print('%d.%d' % sys.version_info[:2])"], { encoding: "utf8" }).stdout.trim();
  const wanted = `python${version}-venv`;
  const isRoot = process.getuid?.() === 0;
  const hasApt = spawnSync("apt-get", ["--version"]).status === 0;
  if (!isRoot || !hasApt) {
    fail(`${python} cannot make virtual environments: install its venv module (Debian and Ubuntu: apt-get install ${wanted})`);
  }
  say(`installing ${wanted}`);
  process.env["DEBIAN_FRONTEND"] = "noninteractive";
  const quiet = ["-qq", "-oDpkg::Use-Pty=0"];
  const install = [...quiet, "install", "--yes", "--no-install-recommends", wanted];
  if (run("apt-get", [...quiet, "update"]) !== 0 || run("apt-get", install) !== 0) {
    fail(`apt-get could not install ${wanted}, which ${python} needs to make a virtual environment`);
  }
}

/**
 * Do `action` unless the stamp says that it was done for the same files by the same interpreter.
 * @param {string} stamp
 * @param {readonly string[]} files
 * @param {string} salt
 * @param {() => void} action
 */
function once(stamp, files, salt, action) {
  const hash = createHash("sha256").update(salt);
  for (const file of files) {
    hash.update(readFileSync(join(ROOT, file)));
  }
  const wanted = hash.digest("hex");
  if (existsSync(stamp) && readFileSync(stamp, "utf8") === wanted) {
    return;
  }
  action();
  mkdirSync(dirname(stamp), { recursive: true });
  writeFileSync(stamp, wanted);
}

/** @param {readonly string[]} files */
function preparePython(files) {
  const works = existsSync(VENV_PYTHON) && spawnSync(VENV_PYTHON, ["-c", "import pip"]).status === 0;
  if (!works) {
    makeEnvironment(findPython());
  }
  for (const file of files) {
    once(join(VENV, `installed-${file}.sha256`), [file], process.version, () => {
      say(`installing ${file} into .venv`);
      const status = run(VENV_PYTHON, ["-m", "pip", "install", "--quiet", "--no-input", "--requirement", file]);
      if (status !== 0) {
        fail(`pip could not install ${file} into .venv`);
      }
    });
  }
}

function prepareNode() {
  once(join(ROOT, "node_modules", "installed.sha256"), ["package-lock.json"], process.arch, () => {
    say("installing the npm packages of package-lock.json");
    if (run("npm", ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]) !== 0) {
      fail("npm ci failed");
    }
  });
}

const [command = "", ...words] = process.argv.slice(2);
const requirements = new Map(Object.entries(REQUIREMENTS)).get(/** @type {keyof typeof REQUIREMENTS} */ (command));
if (requirements === undefined) {
  fail(`unknown command ${JSON.stringify(command)}; known: ${Object.keys(REQUIREMENTS).join(", ")}`);
}
preparePython(requirements);
prepareNode();
const child = spawnSync(VENV_PYTHON, ["-m", `scripts.${command}`, ...words], { cwd: ROOT, stdio: "inherit" });
process.exit(child.status ?? (child.signal === "SIGINT" ? 130 : 1));
