"""The text of statements, of functions, and of all functions together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from trnqc.errors import ProgramError
from trnqc.gen import statements as st
from trnqc.gen.arrays import Array
from trnqc.gen.barriers import needed
from trnqc.gen.emit.dialect import ACCUMULATE, Dialect, safe
from trnqc.gen.emit.expressions import Scalars
from trnqc.gen.emit.vectors import Vectors, preamble
from trnqc.gen.lanes import Lanes, analyse
from trnqc.gen.listing import functions as with_callees
from trnqc.gen.values import Value, Var, const, lane

PAD = "    "
# The number of lanes of a CUDA warp. Their values are summed in registers before one lane adds the sum to memory.
WARP = 32
# The largest number of places from which a function is called that is inlined.
INLINED = 4


class Text:
    """The text of functions in one dialect.

    `accumulate`, a key of ACCUMULATE, is how ``+=`` on memory is written on a GPU; `min_blocks` is the number of
    resident blocks per multiprocessor to compile for, or 0.
    """

    def __init__(self, dialect: Dialect, lanes: int, accumulate: str = "plain", min_blocks: int = 0) -> None:
        if lanes < 1 or lanes & (lanes - 1):
            raise ProgramError(f"the number of lanes must be a power of two, found {lanes}")
        if accumulate not in ACCUMULATE:
            raise ProgramError(f"accumulate must be one of {', '.join(ACCUMULATE)}, found {accumulate!r}")
        self.dialect, self.lanes, self.style, self.min_blocks = dialect, lanes, accumulate, min_blocks
        self.vectors = lanes > 1 and not dialect.threads

    def render(self, roots: Sequence[st.Function], external: Collection[str] = ()) -> str:
        """The text of the functions and of all functions that they call."""
        by_name: dict[str, st.Function] = {}
        parts: list[str] = []
        helpers: dict[str, str] = {}
        for root in roots:
            analysis = analyse(root, external)
            callees = with_callees(root, external)
            calls = Counter(s.function.name for f in callees for s in st.statements(f.body) if isinstance(s, st.Call))
            for f in callees:
                if by_name.setdefault(f.name, f) != f:
                    raise ProgramError(f"two different functions are named {f.name}")
                body = _Function(self, f, analysis, started=f is root, calls=calls[f.name])
                lines = body.prototype() if f.name in external else body.lines()
                helpers |= body.expressions.helpers
                if "\n".join(lines) not in parts:
                    parts.append("\n".join(lines))
        head = [*self.dialect.header, *(preamble(self.lanes) if self.vectors else [])]
        top = "\n".join([*head, *_by_need(helpers)])
        return "\n\n".join([*([top] if top else []), *parts]) + "\n"


def _by_need(helpers: dict[str, str]) -> list[str]:
    """Helper functions, each after the helper functions that it calls."""
    users = ("min", "max", "exp", "gather_rows", "scatter_rows", "pack", "unpack")
    return [helpers[name] for name in sorted(helpers, key=lambda n: (n.startswith(users), n))]


class _Function:
    """The text of one function. `started`: whether the function is a kernel; `calls`: number of call sites."""

    def __init__(self, text: Text, function: st.Function, analysis: Lanes, started: bool, calls: int) -> None:
        self.parent, self.function, self.analysis, self.started, self.calls = text, function, analysis, started, calls
        self.dialect = text.dialect
        kind = Vectors if text.vectors else Scalars
        self.expressions = kind(text.dialect, text.lanes, function, analysis)

    def lines(self) -> list[str]:
        f = self.function
        title = [f"// {f.title}"] if f.title else []
        pad = PAD * (2 if self.looped else 1)
        body = self.block(needed(f, self.started) if self.dialect.threads else f.body, pad)
        return [*title, f"{self.head()} {{", *self.opening(), *body, *([f"{PAD}}}"] if self.looped else []), "}"]

    def prototype(self) -> list[str]:
        """The declaration of a function that another object file contains."""
        f = self.function
        by_lane = self.analysis.names[f.name] & {st.name_of(p) for p in f.params}
        if by_lane:
            raise ProgramError(
                f"the external function {f.name} must be called with values that are the same on every lane; "
                f"{', '.join(sorted(by_lane))} differ"
            )
        params = ", ".join(self.param(p) for p in f.params)
        return [f"{self.dialect.external} {safe(f.name)}({params});"]

    @property
    def looped(self) -> bool:
        return self.started and self.function.group is not None and not self.dialect.threads

    def head(self) -> str:
        f, d = self.function, self.dialect
        params = [self.param(p) for p in f.params]
        if self.looped:
            params += ["int64_t groups_begin", "int64_t groups_end"]
        if d.threads and not self.started:
            params.append("int lane")
        bounds = f"{self.parent.lanes}, {self.parent.min_blocks}" if self.parent.min_blocks else f"{self.parent.lanes}"
        launch = f" __launch_bounds__({bounds})" if d.threads and self.started else ""
        local = d.local if self.calls <= INLINED else d.shared_code
        return f"{d.kernel if self.started else local}{launch} {safe(f.name)}({', '.join(params) or 'void'})"

    def param(self, p: Value | Array) -> str:
        if isinstance(p, Value):
            return f"{self.expressions.variable_type(p)} {safe(p.attr)}"
        read = p.name not in self.function.written
        mark = f"{self.dialect.restrict} " if self.dialect.restrict_written or (read and self.started) else ""
        return f"{'const ' * read}{self.expressions.array_type(p)} *{mark}{safe(p.name)}"

    def opening(self) -> list[str]:
        group = self.function.group
        if not self.dialect.threads:
            if not self.looped or group is None:
                return []
            g = safe(group.attr)
            return [f"{PAD}for (int64_t {g} = groups_begin; {g} < groups_end; {g}++) {{"]
        lines = [f"{PAD}const int lane = threadIdx.x;", f"{PAD}(void)lane;"] if self.started else []
        if group is not None:
            lines.append(f"{PAD}const {self.dialect.types['i64']} {safe(group.attr)} = blockIdx.x;")
        return lines

    def block(self, block: st.Block, pad: str) -> list[str]:
        lines = [f"{pad}// {block.title}"] if block.title else []
        for s in block.body:
            method = getattr(self, f"on_{type(s).__name__.lower()}")
            lines += method(s, pad)
        return lines

    on_block = block

    def on_let(self, s: st.Let | st.Declare, pad: str) -> list[str]:
        x = self.expressions
        differs = s.var.attr in self.analysis.names[self.function.name]
        kind, value = x.variable_type(s.value), x.text(s.value)
        if isinstance(x, Vectors) and differs:
            x.masks[s.var.attr] = x.kind(s.value)
            kind, value = x.vector(x.kind(s.value)), x.spread(s.value)
        return [f"{pad}{kind} {safe(s.var.attr)} = {value};"]

    on_declare = on_let

    def on_assign(self, s: st.Assign, pad: str) -> list[str]:
        x = self.expressions
        if isinstance(x, Vectors) and s.var.attr in self.analysis.names[self.function.name]:
            return [f"{pad}{safe(s.var.attr)} = {x.spread(s.value, x.kind(s.var))};"]
        return [f"{pad}{safe(s.var.attr)} = {x.text(s.value)};"]

    def on_declarearray(self, s: st.DeclareArray, pad: str) -> list[str]:
        a, threads = s.array, self.dialect.threads
        kind = self.expressions.array_type(a)
        if a.data is not None:
            numbers = ", ".join(self.expressions.text(Value("const", a.dtype, (), n)) for n in a.data)
            return [f"{pad}static const {kind} {safe(a.name)}[{a.size}] = {{{numbers}}};"]
        size = (a.size or 0) * (self.parent.lanes if threads and a.lanes and a.space == "shared" else 1)
        shared = self.dialect.shared if a.space == "shared" else ""
        return [f"{pad}{shared}{kind} {safe(a.name)}[{size}];"]

    def on_store(self, s: st.Store, pad: str) -> list[str]:
        return [pad + self.expressions.store(s)]

    def on_accumulate(self, s: st.Accumulate, pad: str) -> list[str]:
        if not self.dialect.threads or s.array.space == "local":
            return [pad + self.expressions.accumulate(s)]
        x = self.expressions
        place, value = x.element(s.array, s.index), x.text(s.value)
        by_lane, integer = s.array.lanes, s.array.dtype == "i64"
        if by_lane and not x.differs(s.index):
            style = ACCUMULATE["plain" if integer else self.parent.style]
            return [pad + style.replace("PLACE", place).replace("VALUE", value)]
        # All lanes of a group, and for global memory all groups, add to the same element.
        who = ""
        if not x.differs(s.index):
            warps = x.differs(s.value) and self.parent.lanes % WARP == 0
            who = f"if (lane % {WARP} == 0) " if warps else "" if x.differs(s.value) else "if (lane == 0) "
            value = f"{x.warp_sum(s.value.dtype)}({value})" if warps else value
        kind = self.dialect.types[s.array.dtype]
        atomic = f"atomicAdd(&{place}, sum_);"
        if integer:  # CUDA has a 64-bit atomicAdd only for unsigned integers. Their sums have the same bits.
            atomic = f"atomicAdd((unsigned long long *)&{place}, (unsigned long long)sum_);"
        if s.where is not None:  # The value may read an element that is there only where the condition holds.
            return [f"{pad}if ({x.text(s.where)}) {{ const {kind} sum_ = {value}; {atomic} }}"]
        return [f"{pad}{{ const {kind} sum_ = {value}; {who}{atomic} }}"]

    def on_gatherrows(self, s: st.GatherRows | st.ScatterRows, pad: str) -> list[str]:
        x = self.expressions
        if isinstance(x, Vectors):
            return [pad + x.rows(s)]
        i = Var("row_", "i64")
        if isinstance(s, st.GatherRows):
            one: st.Statement = st.Store(s.target, i, Value("load", s.source.dtype, (s.start + i,), s.source))
        else:
            one = st.Accumulate(s.target, s.start + i, Value("load", s.source.dtype, (i,), s.source))
        return self.on_for(st.loop(i, s.count, one), pad)

    on_scatterrows = on_gatherrows

    def on_unpack(self, s: st.Unpack | st.Pack, pad: str) -> list[str]:
        x = self.expressions
        if isinstance(x, Vectors):
            return [pad + x.packed(s)]
        i, own = Var("row_", "i64"), lane() * s.stride if self.dialect.threads else const(0, "i64")
        by_lane, common = Value("add", "i64", (s.place, i)), s.start + own + i
        guard = f"if (lane < {s.rows}) " if self.dialect.threads and s.rows < self.parent.lanes else ""
        if isinstance(s, st.Unpack):
            to, value = x.element(s.target, by_lane), x.text(Value("load", s.source.dtype, (common,), s.source))
            value = f"lane < {s.rows} ? {value} : 0" if guard else value
            guard = ""
        else:
            to, value = x.element(s.target, common), x.text(Value("load", s.source.dtype, (by_lane,), s.source))
        kind, n = self.dialect.types["i64"], safe("row_")
        return [f"{pad}for ({kind} {n} = 0; {n} < {s.count}; {n}++) {guard}{to} = {value};"]

    on_pack = on_unpack

    def on_for(self, s: st.For, pad: str) -> list[str]:
        x, i = self.expressions, safe(s.var.attr)
        step = f"{i}++" if s.step == 1 else f"{i} += {s.step}"
        kind = self.dialect.types[s.var.dtype]
        end = x.text(s.end)
        begin = x.text(s.begin)
        if s.end.op not in ("const", "var"):
            # The bounds are evaluated once.
            head = f"for ({kind} {i} = {begin}, {i}_end = {end}; {i} < {i}_end; {step}) {{"
        else:
            head = f"for ({kind} {i} = {begin}; {i} < {end}; {step}) {{"
        return [pad + head, *self.block(s.body, pad + PAD), f"{pad}}}"]

    def on_while(self, s: st.While, pad: str) -> list[str]:
        head = f"{pad}while ({self.expressions.text(s.condition)}) {{"
        return [head, *self.block(s.body, pad + PAD), f"{pad}}}"]

    def on_if(self, s: st.If, pad: str) -> list[str]:
        lines = [f"{pad}if ({self.expressions.text(s.condition)}) {{", *self.block(s.then, pad + PAD)]
        if s.orelse.body:
            lines += [f"{pad}}} else {{", *self.block(s.orelse, pad + PAD)]
        return [*lines, f"{pad}}}"]

    def on_call(self, s: st.Call, pad: str) -> list[str]:
        x = self.expressions
        texts = []
        for param, argument in zip(s.function.params, s.arguments):
            if isinstance(argument, st.View):
                texts.append(self.view(argument, st.name_of(param) in s.function.written))
            elif isinstance(argument, Array):
                if isinstance(x, Scalars) and isinstance(param, Array) and x.has_lanes(argument) != x.has_lanes(param):
                    raise ProgramError(
                        f"{s.function.name} is written for an array in {param.space} memory and is called with "
                        f"{argument.name} in {argument.space} memory, whose lanes lie elsewhere"
                    )
                texts.append(safe(argument.name))
            elif isinstance(x, Vectors) and st.name_of(param) in self.analysis.names[s.function.name]:
                texts.append(x.spread(argument))
            else:
                texts.append(x.text(argument))
        return [f"{pad}{safe(s.function.name)}({', '.join(texts + ['lane'] * self.dialect.threads)});"]

    def view(self, argument: st.View, written: bool) -> str:
        """The address at which a view begins; vectors in memory are cast to their elements if it is flat."""
        address = self.expressions.address(argument.array, argument.begin)
        if not argument.flat or not self.parent.vectors:
            return address
        return f"({'' if written else 'const '}{self.dialect.types[argument.array.dtype]} *)({address})"

    def on_barrier(self, s: st.Barrier, pad: str) -> list[str]:
        return [pad + self.dialect.barrier] if self.dialect.barrier else []

    def on_prefetch(self, s: st.Prefetch, pad: str) -> list[str]:
        if self.dialect.threads:
            return []
        return [f"{pad}__builtin_prefetch({self.expressions.address(s.array, s.index)});"]

    def on_fence(self, s: st.Fence, pad: str) -> list[str]:
        operands = ", ".join(f'"{self.dialect.constraints[v.dtype]}"({safe(v.attr)})' for v in s.variables)
        return [f'{pad}{self.dialect.asm}("" : {operands} : : "memory");']
