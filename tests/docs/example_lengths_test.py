"""The example lists are what their generator makes, and follow the table."""
import pathlib
import subprocess
import sys

folder = pathlib.Path(sys.argv[1])
generator = [sys.executable, "-B", str(folder / "synthesize_lengths.py")]
for name in ("wikipedia", "lmsyschat1m", "chatqa2"):
    made = subprocess.run(
        generator + ["--dataset", name, "--count", "25600", "--seed", "1"],
        check=True, capture_output=True).stdout
    if made != (folder / f"{name}.txt").read_bytes():
        sys.exit(f"{name}.txt is not what its generator makes")
subprocess.run(generator + ["--self-check", "--count", "200000"], check=True)
