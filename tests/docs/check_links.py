"""Every relative link of a Markdown page leads to a file. Argument: the root."""
import pathlib
import re
import sys

LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")

root = pathlib.Path(sys.argv[1])
pages = [page for folder in (".", "docs", "docs/decisions", "docs/python", "deploy",
                             "deploy/examples/jobs", "deploy/examples/lengths")
         for page in sorted((root / folder).glob("*.md"))]
broken = [f"{page.relative_to(root)}: {target}"
          for page in pages
          for target in LINK.findall(page.read_text(encoding="utf-8"))
          if "://" not in target and not (page.parent / target).exists()]
print("\n".join(broken) or f"{len(pages)} pages, all links lead somewhere")
sys.exit(1 if broken or not pages else 0)
