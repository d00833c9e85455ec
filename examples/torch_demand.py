# SPDX-License-Identifier: BSD-3-Clause
"""Who sends how much to whom in a mixture-of-experts layer: popularity of experts by name, seed and step. Plain Python.

The names follow the skew family that Megatron-LM's users measure with, and DeepEP's log-normal routing. They are those of
`mpath_plan --workload` and `mpath_bench --workload`, which have the same popularity for the same name, seed and step:

    balanced            every expert alike
    mild                the most popular expert has twice the tokens of the least popular
    hot[:H]             one expert, drawn from the seed, gets the fraction H (0.7) and its share of the rest
    moving[:H]          the same, and the next expert in every step
    burst[:H]           balanced, and in every 8th step hot
    zipf[:S]            popularity 1/k^S (0.8) in an order drawn from the seed
    lognormal[:SIGMA]   exp of normal numbers with this deviation (1.0)
    file:PATH[:LAYER]   a table of expert loads, as published for EPLB: a line of numbers for each layer, or [[...], ...]; steps go
                        through the layers unless one is named
"""
import math
import re

_BURST_PERIOD = 8
_PPM = 1000000
_VALUES = {"hot": "0.7", "moving": "0.7", "burst": "0.7", "zipf": "0.8", "lognormal": "1"}
_MOST = {"hot": 1, "moving": 1, "burst": 1, "zipf": 4, "lognormal": 8}
_MASK = (1 << 64) - 1


# --- mpath's integer arithmetic (src/plan/fixed.c, workload.c): the same numbers as mpath_plan and mpath_bench have ------------------


def _root(bits, index):
    """round(2^bits * 2^(-index / 64)), exactly."""
    low, high = 0, 1 << bits
    while low < high:  # the largest x with x - 1/2 <= the number
        middle = (low + high + 1) // 2
        if (2 * middle - 1) ** 64 * 2 ** index <= 2 ** (64 * (bits + 1)):
            low = middle
        else:
            high = middle - 1
    return low


def _log(index):
    """round(2^20 * log2(1 + index / 64)): decimals are enough for 64 known numbers."""
    return round(math.log2(1 + index / 64) * (1 << 20))


_EXP2 = [_root(32, i) for i in range(65)]
_LOG2 = [_log(i) for i in range(65)]


def _exp2_negative(x):
    """2^(32 - x), of x with 20 bits behind the point."""
    whole, step, rest = x >> 20, (x >> 14) & 63, x & 0x3fff
    if whole >= 32:
        return 0
    return (_EXP2[step] - ((_EXP2[step] - _EXP2[step + 1]) * rest >> 14)) >> whole


def _log2(x):
    """With 20 bits behind the point."""
    whole = x.bit_length() - 1
    mantissa = (x << (63 - whole)) & ((1 << 63) - 1)
    step, rest = mantissa >> 57, (mantissa >> 37) & 0xfffff
    return (whole << 20) + _LOG2[step] + ((_LOG2[step + 1] - _LOG2[step]) * rest >> 20)


class _Random:
    """splitmix64"""

    def __init__(self, seed):
        self.state = seed & _MASK

    def next(self):
        self.state = (self.state + 0x9e3779b97f4a7c15) & _MASK
        z = self.state
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9 & _MASK
        z = (z ^ (z >> 27)) * 0x94d049bb133111eb & _MASK
        return z ^ (z >> 31)

    def shuffle(self, values):
        for at in range(len(values) - 1, 0, -1):
            other = self.next() % (at + 1)
            values[at], values[other] = values[other], values[at]
        return values

    def normal(self):
        """With 20 bits behind the point: Marsaglia's polar method."""
        while True:
            bits = self.next()
            u, v = (bits >> 32) - (1 << 31), (bits & 0xffffffff) - (1 << 31)
            square = u * u + v * v
            if 0 < square < 1 << 62:
                break
        factor = math.isqrt((1453635 * ((62 << 20) - _log2(square)) << 62) // square)
        size = abs(u) * factor >> 31
        return -size if u < 0 else size


def _ppm(name, text, most):
    """"0.7" as millionths."""
    if not re.fullmatch(r"[0-9]*\.?[0-9]*", text) or not re.search("[0-9]", text):
        raise ValueError(f"demand '{name}': '{text}' is no number")
    whole, _, fraction = text.partition(".")
    value = int(whole or 0) * _PPM + int((fraction + "000000")[:6])
    if value > most * _PPM:
        raise ValueError(f"demand '{name}': the value is a number between 0 and {most}")
    return value


def _zipf(experts, s_ppm, draw):
    return draw.shuffle([max(_exp2_negative(_log2(k + 1) * s_ppm // _PPM), 1) for k in range(experts)])


def _hot(experts, which, ppm):
    weights = [_PPM - ppm] * experts
    weights[which % experts] += ppm * experts
    return weights


def _lognormal(experts, sigma_ppm, draw):
    normal = [draw.normal() for _ in range(experts)]
    most = max(normal)
    return [max(_exp2_negative(((most - n) * sigma_ppm * 1512775 >> 20) // _PPM), 1) for n in normal]


# --- files ----------------------------------------------------------------------------------------------------------------------------


def _read(path):
    """The text of a file, without its comments but with all lines."""
    with open(path, encoding="utf-8-sig") as file:
        return re.sub("#.*", "", file.read())


def _numbers(path, text, begin, end):
    """Those between two places of the text, separated by blanks, commas or semicolons."""
    row = []
    for word in re.compile(r"[^\s,;]+").finditer(text, begin, end):
        if not re.fullmatch(r"([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", word.group()):
            line, column = text.count("\n", 0, word.start()) + 1, word.start() - text.rfind("\n", 0, word.start())
            raise ValueError(f"{path}:{line}:{column}: '{word.group()}' is not a number; nothing was read")
        row.append(float(word.group()))
    return row


def read_table(path):
    """Lines of numbers; or lists of numbers in brackets, [[1, 2], [3, 4]], over any lines: a row each."""
    text = _read(path)
    places = re.finditer(r"(?<=\[)[^\[\]]*(?=\])" if text.lstrip().startswith("[") else r"[^\n]+", text)
    rows = [row for row in (_numbers(path, text, *place.span()) for place in places) if row]
    if not rows:
        raise ValueError(f"{path}: no numbers in it")
    return rows


def _file(name, value, experts, step):
    path, _, layer = value.rpartition(":")
    if not path or not layer.isdigit():
        path, layer = value, ""
    table = read_table(path)
    if layer and int(layer) >= len(table):
        raise ValueError(f"demand '{name}': the table has layers 0 to {len(table) - 1}")
    row = table[int(layer) if layer else step % len(table)]
    if len(row) != experts or min(row) < 0 or sum(row) <= 0:
        raise ValueError(f"{path}: loads of {len(row)} experts, none below 0 and not all 0, are needed for {experts} experts")
    return [round(load * (1 << 20)) for load in row]


_UCC_BYTES = {"8": 1, "16": 2, "32": 4, "64": 8, "128": 16}


def _read_patterns(path):
    """UCC perftest's pattern files: sections [collective] with counts of a datatype; a matrix each."""
    text, matrices = _read(path), []
    for section in re.finditer(r"\[collective\]([^\[]*)", text):
        counts = re.compile(r"counts\s*=\s*\{([^}]*)\}").search(text, *section.span())
        if not counts:
            raise ValueError(f"{path}:{text.count(chr(10), 0, section.start()) + 1}:1: the collective has no counts in braces")
        bits = re.search(r"datatype\s*=\s*[A-Z]+([0-9]+)(_COMPLEX)?", section.group())
        unit = _UCC_BYTES.get(bits.group(1), 4) * (2 if bits.group(2) else 1) if bits else 4
        values = [int(n) * unit for n in _numbers(path, text, *counts.span(1))]
        ranks = math.isqrt(len(values))
        matrices.append([values[at:at + ranks] for at in range(0, len(values), ranks or 1)])
    return matrices


def read_matrix(path, ranks, scale=1.0, step=0):
    """A byte matrix, one row per source, each entry times `scale`: that of nccl-tests, or the collective `step` of UCC's patterns."""
    patterns = _read_patterns(path) if "[collective]" in _read(path) else None
    rows = patterns[step % len(patterns)] if patterns else read_table(path)
    if len(rows) != ranks or any(len(row) != ranks for row in rows):
        raise ValueError(f"{path}: must have {ranks} rows of {ranks} numbers for {ranks} ranks")
    return [[int(n * scale) for n in row] for row in rows]


def weights(name, experts, seed=0, step=0):
    """How often each expert is chosen, as whole numbers of which only the ratios have a meaning."""
    kind, colon, value = name.partition(":")
    if kind == "file" and value:
        return _file(name, value, experts, step)
    if colon and kind not in _VALUES:
        raise ValueError(f"demand '{name}': '{kind}' takes no value")
    ppm = _ppm(name, value if colon else _VALUES[kind], _MOST[kind]) if kind in _VALUES else 0
    if kind == "balanced":
        return [1] * experts
    if kind == "mild":
        return _Random(seed).shuffle([2 * max(experts - 1, 1) - place for place in range(experts)])
    if kind == "burst" and step % _BURST_PERIOD != 0:
        return [_PPM] * experts
    if kind in ("hot", "moving", "burst"):
        return _hot(experts, seed + (step if kind == "moving" else 0), ppm)
    if kind == "zipf":
        return _zipf(experts, ppm, _Random(seed))
    if kind == "lognormal":
        return _lognormal(experts, ppm, _Random(seed))
    raise ValueError(f"no demand '{name}'; there are balanced, mild, hot, moving, burst, zipf, lognormal, file")


def popularity(name, experts, seed=0, step=0):
    """The fraction of all tokens that each expert gets; the sum is 1."""
    numbers_of = weights(name, experts, seed, step)
    total = sum(numbers_of)
    return [weight / total for weight in numbers_of]


def divide(total, shares):
    """`total` things by these shares, all of them: what rounding leaves goes to the largest remainders."""
    exact = [total * share for share in shares]
    counts = [int(x) for x in exact]
    left = total - sum(counts)
    for at in sorted(range(len(shares)), key=lambda i: (counts[i] - exact[i], i))[:left]:
        counts[at] += 1
    return counts


def matrix(name, ranks, rows, seed=0, step=0):
    """Rows that each rank sends to each: every source follows the same popularity, one expert per rank."""
    return [divide(rows, popularity(name, ranks, seed, step)) for _ in range(ranks)]
