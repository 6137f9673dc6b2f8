#!/usr/bin/env python3
"""Open reports in a headless Chromium: does the script run, without errors?

  report_in_browser.py SKRULLCTL SOURCE_DIR    # exits 77 without a Chromium

Standard library of Python only.
"""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

NAMES = ("chromium", "chromium-browser", "google-chrome",
         "google-chrome-stable")
SKIPPED = 77

SMALL_JOB = """
model { hidden_size: 896 layer_count: 24 attention_head_count: 14 }
parallelism { dp_size: 2 cp_size: 3 block_scope: BLOCK_SCOPE_POOL }
memory { bucket_size_tokens: 1000 bytes_per_token: 100 device_bytes: 200000
         gather_bytes_per_token: 10 }
cost { overlap_scope: OVERLAP_SCOPE_ATTENTION }
"""
SMALL_LENGTHS = "700\n3900\n30\n5\n900\n"
SECTIONS = ["What bounds the step", "Where the time goes", "Timeline",
            "Load of each rank", "What is sharded, and why", "Lengths",
            "Micro-batches"]


def find_browser():
    """A Chromium that starts at all; None if there is none."""
    for path in filter(None, map(shutil.which, NAMES)):
        if subprocess.run([path, "--version"], capture_output=True,
                          check=False).returncode == 0:
            return path
    return None


def dom_of(browser, page, home):
    """The document after its script ran, and what the console said."""
    result = subprocess.run(
        [browser, "--headless=new", "--no-sandbox", "--disable-gpu",
         "--disable-dev-shm-usage", "--enable-logging=stderr", "--v=0",
         f"--user-data-dir={home}", "--virtual-time-budget=5000",
         "--dump-dom", page.as_uri()],
        capture_output=True, text=True, timeout=120, check=False)
    console = [line for line in result.stderr.splitlines() if ":CONSOLE" in line]
    return result.stdout, console


def text_of(dom):
    """Visible text: without the data and the scripts."""
    return re.sub(r"<[^>]*>", " ",
                  re.sub(r"<(script|style|noscript)\b.*?</\1>", " ", dom,
                         flags=re.DOTALL))


def problems_of(dom, console, ranks, words):
    """What is wrong with a report of that many ranks; none if it is fine."""
    problems = [f"the console says: {line}" for line in console]
    if f'data-drawn="{ranks}"' not in dom:
        problems.append(f"the script did not draw {ranks} ranks")
    text = text_of(dom)
    problems += [f"no {word!r} in the page" for word in SECTIONS + words
                 if word not in text]
    problems += [f"{bad!r} in the page" for bad in ("NaN", "undefined",
                                                    "Infinity", "[object")
                 if bad in text]
    return problems


def main():
    skrullctl, source = sys.argv[1], pathlib.Path(sys.argv[2])
    browser = find_browser()
    if browser is None:
        print("no Chromium is installed: skipped")
        return SKIPPED
    examples = source / "deploy/examples"
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "job").write_text(SMALL_JOB, encoding="utf-8")
        (folder / "lengths").write_text(SMALL_LENGTHS, encoding="utf-8")
        paper = examples / "jobs/qwen2.5-0.5b.textproto"
        wide = folder / "wide"
        wide.write_text(paper.read_text(encoding="utf-8").replace(
            "dp_size: 4", "dp_size: 64"), encoding="utf-8")
        for name, ranks, words, arguments in [
                ("small", 6, ["run7", "Bytes", "linear"],
                 ["--job-spec", folder / "job", "--lengths",
                  folder / "lengths", "--name", "run7"]),
                ("wikipedia", 32, ["OPTIMIZED", "over static CP"],
                 ["--job-spec", paper, "--lengths",
                  examples / "lengths/wikipedia.txt", "--batch-size", "256",
                  "--policy", "POLICY_OPTIMIZED"]),
                ("512 ranks", 512, ["the busiest rank of each DP rank"],
                 ["--job-spec", wide, "--lengths",
                  examples / "lengths/chatqa2.txt", "--batch-size", "2048",
                  "--policy", "POLICY_STATIC_CP"])]:
            page = folder / (name.replace(" ", "-") + ".html")
            subprocess.run([skrullctl, "report", "--output", page, *arguments],
                           check=True, timeout=120)
            dom, console = dom_of(browser, page, folder / "home")
            problems = problems_of(dom, console, ranks, words)
            failed = failed or bool(problems)
            print(f"{name}: {'; '.join(problems) or 'fine'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
