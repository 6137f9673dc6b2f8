#!/usr/bin/env python3
"""Does the library export what its headers declare, and nothing else?

  check_exports.py NM LIBRARY HEADER...
"""
import re
import subprocess
import sys


def main():
    nm, library, *headers = sys.argv[1:]
    listing = subprocess.run([nm, "-D", "--defined-only", library], check=True,
                             capture_output=True, text=True).stdout
    exported = {line.split()[-1].split("@")[0] for line in listing.splitlines()}
    declared = set()
    for header in headers:
        text = re.sub(r"/\*.*?\*/", "", open(header, encoding="utf-8").read(),
                      flags=re.S)
        declared |= set(re.findall(r"\b(skrull_\w+)\(", text))
        declared |= set(re.findall(r"\bextern const \w+ (skrull_\w+);", text))
    for name in sorted(exported - declared):
        print(f"exported, but in no header: {name}")
    for name in sorted(declared - exported):
        print(f"in a header, but not exported: {name}")
    print(f"{len(exported)} exported, {len(declared)} declared")
    return 0 if declared and exported == declared else 1


if __name__ == "__main__":
    sys.exit(main())
