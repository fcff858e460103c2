"""The statements of a notebook that its kept tables are made by; `dpbook record` runs these and nothing else.

So a recorded table cannot depend on what is left out: figures, shown tables, verdicts and texts. Statements are taken
from the last to the first, one at the top of a cell being the smallest piece: those that call `book.keep`, and those
that bind, or change in place, a name that a later one of them reads. In place means by an attribute or an item that is
set, or by a method that is called for nothing else (`rows.append(row)`). Where a function changes its argument, or a
second name of an object is used to change it, the statement is missed, and the recorded table is made without it; the
tests hold that both ways of running a chapter keep the same tables.
"""

import ast
import symtable
from collections.abc import Collection, Sequence

from helpers import sources

KEEP = "keep"
_SHOWS = ("helpers.book", "checks.claims")  # what is called there shows something and changes nothing
_AT_ONCE = {"listcomp", "setcomp", "dictcomp", "genexpr"}  # as symtable calls the scopes that run where they stand


def kept(cells: Sequence[str], given: Collection[str] = (), wanted: Collection[str] = ()) -> list[str]:
    """Each cell with nothing but the statements that kept tables are made by.

    Parameters
    ----------
    cells : sequence of str
        Code cells.
    given : collection of str
        Names of parameters that a run sets; the statements that give them their defaults are left out.
    wanted : collection of str
        Further names to begin with, such as a function of a script.

    >>> kept(["n: int = 2", "x = [n]\\nprint(x)", "x.append(3)", "y = x\\nbook.keep(y, 'y')\\nbook.Table(y)"], {"n"})
    ['', 'x = [n]', 'x.append(3)', "y = x\\nbook.keep(y, 'y')"]
    """
    nodes = [
        (place, node)
        for place, cell in enumerate(cells)
        for node in sources.parsed(cell).body
        if not (isinstance(node, ast.AnnAssign) and _bound(node) & {*given})
    ]
    imports = [node for _, node in nodes if isinstance(node, ast.ImportFrom)]
    showing = {name for node in imports for name in _bound(node) if f"{node.module}.{name}".startswith(_SHOWS)}
    keeping = {KEEP} | {node.name for _, node in nodes if isinstance(node, ast.FunctionDef) and _calls(node, {KEEP})}
    taken: set[int] = set()
    late: set[str] = set()  # read by functions, whenever they run
    before = -1
    while before < len(taken):
        before, needed = len(taken), set[str]()
        for index in reversed(range(len(nodes))):
            node = nodes[index][1]
            if index in taken or _calls(node, keeping) or _changed(node, showing) & (needed | late | {*wanted}):
                taken.add(index)
                # What may not happen, or happens to a part, leaves the need for what was there before.
                if not isinstance(node, ast.If | ast.For | ast.While | ast.With | ast.Try | ast.AugAssign):
                    needed -= _bound(node)
                needed |= _read([node])
                late |= _names(node)[1]
    texts: list[list[str]] = [[] for _ in cells]
    for index in sorted(taken):
        texts[nodes[index][0]].append(ast.unparse(nodes[index][1]))
    return ["\n".join(statements) for statements in texts]


def _calls(node: ast.AST, names: Collection[str]) -> bool:
    calls = (part.func for part in ast.walk(node) if isinstance(part, ast.Call))
    return any({getattr(call, "id", ""), getattr(call, "attr", "")} & {*names} for call in calls)


def _bound(node: ast.AST) -> set[str]:
    """Names that code binds where it stands."""
    symbols = symtable.symtable(ast.unparse(node), "", "exec").get_symbols()
    return {one.get_name() for one in symbols if one.is_assigned() or one.is_imported() or one.is_namespace()}


def _changed(node: ast.AST, showing: Collection[str]) -> set[str]:
    """Names that a statement binds, or whose objects it changes."""
    found = _bound(node)
    for part in ast.walk(node):
        if isinstance(part, ast.Attribute | ast.Subscript) and not isinstance(part.ctx, ast.Load):
            found |= _root(part)
        elif isinstance(part, ast.Expr) and isinstance(getattr(part.value, "func", None), ast.Attribute):
            found |= _root(part.value.func) - {*showing}  # type: ignore[attr-defined]
    return found


def _root(node: ast.expr) -> set[str]:
    """The name that a chain of attributes and items begins with; none where it begins with the value of a call."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return {node.id} if isinstance(node, ast.Name) else set()


def _read(body: Sequence[ast.AST], bound: Collection[str] = ()) -> set[str]:
    """Names that statements read before they bind them."""
    found, bound = set[str](), {*bound}
    for node in body:
        # First runs the head, which binds some names, then the blocks or none of them.
        heads: list[ast.AST]
        heads, own, blocks = [node], set[str](), list[list[ast.stmt]]()
        if isinstance(node, ast.For):
            heads, own, blocks = [node.iter], _stored([node.target]), [node.body, node.orelse]
        elif isinstance(node, ast.If | ast.While):
            heads, blocks = [node.test], [node.body, node.orelse]
        elif isinstance(node, ast.With):
            heads, blocks = [item.context_expr for item in node.items], [node.body]
            own = _stored([item.optional_vars for item in node.items if item.optional_vars])
        elif isinstance(node, ast.Try):
            heads, blocks = [], [node.body, *(one.body for one in node.handlers), node.orelse, node.finalbody]
        for head in heads:
            found |= set().union(*_names(head)) - bound
        for block in blocks:
            found |= _read(block, bound | own)
        if not blocks:
            bound |= _bound(node)
    return found


def _stored(targets: Sequence[ast.expr]) -> set[str]:
    return {part.id for one in targets for part in ast.walk(one) if isinstance(part, ast.Name)}


def _names(node: ast.AST) -> tuple[set[str], set[str]]:
    """Names of the notebook that code reads where it stands, and those that its functions read when they run."""
    top = symtable.symtable(ast.unparse(node), "", "exec")
    now = {one.get_name() for one in top.get_symbols() if one.is_referenced()}
    if isinstance(node, ast.AugAssign):
        now |= _bound(node)
    later: set[str] = set()
    ahead = [(table, table.get_name() in _AT_ONCE) for table in top.get_children()]
    while ahead:
        table, at_once = ahead.pop()
        (now if at_once else later).update(one.get_name() for one in table.get_symbols() if one.is_global())
        ahead += [(one, at_once and one.get_name() in _AT_ONCE) for one in table.get_children()]
    return now, later
