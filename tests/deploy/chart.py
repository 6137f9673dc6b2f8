"""Render a Helm chart, for tests where there is no Helm.

  files = render("deploy/helm/skrull", "skrull", {"replicas": 3})

Knows the part of Go's template language and of Sprig that our chart uses, and
raises TemplateError at anything else, so that what it renders is what Helm
would. Needs PyYAML and jsonschema.
"""
import hashlib
import json
import pathlib
import re

import jsonschema
import yaml


class TemplateError(Exception):
    """A template that fails, by `fail` or because it is none."""


# --- Reading templates -------------------------------------------------------

ACTION = re.compile(r"\{\{(- )?(.*?)( -)?\}\}", re.DOTALL)
COMMENT = re.compile(r"/\*.*\*/", re.DOTALL)
TOKEN = re.compile(r"""\s*(?:(?P<string>"(?:[^"\\]|\\.)*")|(?P<number>\d+)
    |(?P<path>[.$][\w.]*)|(?P<name>[a-zA-Z]\w*)|(?P<mark>:=|[|(),]))""", re.VERBOSE)


def tokens_of(text):
    """The words of an action, as (kind, text)."""
    found, at = [], 0
    while text[at:].strip():
        match = TOKEN.match(text, at)
        if not match:
            raise TemplateError(f"cannot read: {text}")
        found.append((match.lastgroup, match.group(match.lastgroup)))
        at = match.end()
    return found


def pieces_of(text):
    """Text and actions in turn, white space trimmed: ("text"|"action", body)."""
    found, at, trim = [], 0, False
    for match in ACTION.finditer(text):
        before = text[at:match.start()]
        before = before.lstrip() if trim else before
        found.append(("text", before.rstrip() if match.group(1) else before))
        body = match.group(2).strip()
        if not COMMENT.fullmatch(body):
            found.append(("action", body))
        trim, at = bool(match.group(3)), match.end()
    found.append(("text", text[at:].lstrip() if trim else text[at:]))
    return found


def parse(pieces, until=()):
    """A list of nodes up to an action in `until`; returns it with that action."""
    nodes = []
    while pieces:
        kind, body = pieces.pop(0)
        if kind == "text":
            nodes.append(("text", body))
            continue
        word, _, rest = body.partition(" ")
        if word in until:
            return nodes, body
        if word in ("if", "with", "range", "define"):
            inner, end = parse(pieces, ("else", "end"))
            other = []
            if end.startswith("else"):
                if end != "else":
                    raise TemplateError(f"not known here: {end}")
                other, end = parse(pieces, ("end",))
            nodes.append((word, rest, inner, other))
        else:
            nodes.append(("print", body))
    if until:
        raise TemplateError(f"no {until[-1]}")
    return nodes, ""


# --- Values ------------------------------------------------------------------

def to_yaml(value):
    return yaml.safe_dump(value, default_flow_style=False, width=1 << 20).rstrip("\n")


def indent(count, text):
    return "\n".join(" " * count + line for line in text.split("\n"))


def fail(message):
    raise TemplateError(message)


FUNCTIONS = {
    "add": lambda *numbers: sum(int(n) for n in numbers),
    "default": lambda fallback, value: value or fallback,
    "fail": fail,
    "gt": lambda a, b: a > b,
    "indent": indent,
    "int": int,
    "kindIs": lambda kind, value: kind == "string" and isinstance(value, str),
    "list": lambda *items: list(items),
    "nindent": lambda count, text: "\n" + indent(count, text),
    "not": lambda value: not value,
    "printf": lambda form, *values: form % values,
    "quote": json.dumps,
    "sha256sum": lambda text: hashlib.sha256(text.encode()).hexdigest(),
    "toJson": json.dumps,
    "toYaml": to_yaml,
}


def printed(value):
    if value is None:
        raise TemplateError("a value that is not there is printed")
    return str(value).lower() if isinstance(value, bool) else str(value)


# --- Rendering ---------------------------------------------------------------

class Renderer:
    """Renders nodes; knows the named templates of a chart."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.named = {}

    def load(self, text):
        """The nodes of a file, but for what it defines, which is remembered."""
        nodes, _ = parse(pieces_of(text))
        for node in nodes:
            if node[0] == "define":
                self.named[json.loads(node[1])] = node[2]
        return [node for node in nodes if node[0] != "define"]

    def render(self, nodes, dot, variables):
        return "".join(self.one(node, dot, variables) for node in nodes)

    def one(self, node, dot, variables):
        kind = node[0]
        if kind == "text":
            return node[1]
        if kind == "print":
            return printed(self.value(tokens_of(node[1]), dot, variables))
        _, head, inner, other = node
        if kind == "range":
            return self.range(head, inner, dot, variables)
        value = self.value(tokens_of(head), dot, variables)
        if kind == "with":
            dot = value if value else dot
        return self.render(inner if value else other, dot, variables)

    def range(self, head, inner, dot, variables):
        tokens, names = tokens_of(head), []
        if ("mark", ":=") in tokens:
            at = tokens.index(("mark", ":="))
            names = [text for kind, text in tokens[:at] if kind == "path"]
            tokens = tokens[at + 1:]
        items = self.value(tokens, dot, variables) or []
        pairs = sorted(items.items()) if isinstance(items, dict) else enumerate(items)
        text = ""
        for key, item in pairs:
            bound = dict(zip(names, [item] if len(names) == 1 else [key, item]))
            text += self.render(inner, item, {**variables, **bound})
        return text

    def value(self, tokens, dot, variables):
        """The value of a pipeline."""
        stages, depth = [[]], 0
        for token in tokens:
            depth += {"(": 1, ")": -1}.get(token[1], 0) if token[0] == "mark" else 0
            if token == ("mark", "|") and depth == 0:
                stages.append([])
            else:
                stages[-1].append(token)
        piped = []
        for stage in stages:
            piped = [self.call(stage, dot, variables, piped)]
        return piped[0]

    def call(self, tokens, dot, variables, piped):
        kind, word = tokens[0]
        tokens = list(tokens)
        if kind != "name" and not word.endswith(".Files.Get"):
            value = self.argument(tokens, dot, variables)
            if tokens or piped:
                raise TemplateError(f"{word} is no function")
            return value
        tokens.pop(0)
        lazy = word in ("and", "or")
        arguments = []
        while tokens:
            arguments.append(self.argument(tokens, dot, variables))
            if lazy and bool(arguments[-1]) == (word == "or"):
                return arguments[-1]
        arguments += piped
        if lazy:
            return arguments[-1]
        if word == "include":
            return self.render(self.named[arguments[0]], arguments[1], {"$": arguments[1]})
        if word.endswith(".Files.Get"):
            return (self.folder / arguments[0]).read_text(encoding="utf-8")
        if word not in FUNCTIONS:
            raise TemplateError(f"no function {word}")
        return FUNCTIONS[word](*arguments)

    def argument(self, tokens, dot, variables):
        kind, word = tokens.pop(0)
        if kind == "string":
            return json.loads(word)
        if kind == "number":
            return int(word)
        if kind == "path":
            first, *names = word.split(".")
            value = variables[first] if first else dot
            for name in filter(None, names):
                value = (value or {}).get(name)
            return value
        if word != "(":
            raise TemplateError(f"not known here: {word}")
        inner, depth = [], 1
        while True:
            token = tokens.pop(0)
            depth += {("mark", "("): 1, ("mark", ")"): -1}.get(token, 0)
            if depth == 0:
                return self.value(inner, dot, variables)
            inner.append(token)


def merged(base, over):
    """`over` on top of `base`, as Helm merges values."""
    if not isinstance(base, dict) or not isinstance(over, dict):
        return over
    return {**base, **{key: merged(base.get(key), value) for key, value in over.items()}}


def values_of(folder, over):
    """The chart's values with `over`. Raises jsonschema.ValidationError."""
    folder = pathlib.Path(folder)
    values = yaml.safe_load((folder / "values.yaml").read_text(encoding="utf-8"))
    values = merged(values, over)
    schema = json.loads((folder / "values.schema.json").read_text(encoding="utf-8"))
    jsonschema.validate(values, schema, jsonschema.Draft7Validator)
    return values


def render(folder, release, over):
    """{file name: text} of the templates that are not empty, by name."""
    folder = pathlib.Path(folder)
    chart = yaml.safe_load((folder / "Chart.yaml").read_text(encoding="utf-8"))
    dot = {
        "Values": values_of(folder, over),
        "Release": {"Name": release, "Service": "Helm"},
        "Chart": {"Name": chart["name"], "Version": chart["version"],
                  "AppVersion": chart["appVersion"]},
    }
    renderer = Renderer(folder)
    bodies = {}
    for path in sorted((folder / "templates").iterdir()):
        nodes = renderer.load(path.read_text(encoding="utf-8"))
        if path.suffix == ".yaml":
            bodies[path.name] = nodes
    texts = {name: renderer.render(nodes, dot, {"$": dot}).strip()
             for name, nodes in bodies.items()}
    return {name: text + "\n" for name, text in texts.items() if text}
