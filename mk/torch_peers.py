"""What PyTorch takes for the work of `attest bench` shapes, for `attest bench --against torch`.

    python3 mk/torch_peers.py --probe        exit 0 if torch and a GPU are there, 77 with the reason if not
    python3 mk/torch_peers.py CASE...        one JSON object a line for each peer of each case

Every peer does the whole work of the case on the same shape, from the same inputs to the same kind
of output: torch eager, torch.compile, and for attention scaled_dot_product_attention over the gathered
keys. Selections and page tables are random ones without repeats. As in `attest bench`, sets of inputs
and outputs take turns, so that together they exceed twice the L2, many calls are recorded in one CUDA
graph, and device events time its replays: the time is that of the kernels, without Python. What cannot
be recorded is called in a loop instead ("clock": "calls"), which includes launching.
"""
import json
import math
import statistics
import sys

SETS_MAX, LAUNCHES_MAX, SAMPLES_MIN, SAMPLES_MAX = 32, 256, 5, 31
SAMPLE_MS, CASE_MS = 2.0, 500.0


def unavailable(why):
    print(f"torch peers: {why}", file=sys.stderr)
    sys.exit(77)


try:
    import torch
    import torch.nn.functional as F
except ImportError as error:
    unavailable(f"PyTorch is not here ({error})")
if not torch.cuda.is_available():
    unavailable("PyTorch sees no GPU")


def parse(text):
    """The keys of a case: whole numbers and decimals as such, lists of them, words."""

    def value(word):
        for kind in (int, float):
            try:
                return kind(word)
            except ValueError:
                pass
        return word

    op, _, rest = text.partition(":")
    keys, depth, start = {}, 0, 0
    for i, letter in enumerate(rest + ","):
        depth += (letter == "[") - (letter == "]")
        if letter == "," and depth == 0:
            name, _, word = rest[start:i].partition("=")
            inside = word[1:-1] if word.startswith("[") else None
            keys[name] = (value(word) if inside is None else
                          [value(w) for w in inside.split(",") if w])
            start = i + 1
    return op, keys


def randn(*shape, dtype=torch.float32):
    return torch.randn(*shape, device="cuda").to(dtype)


def distinct(rows, below, count):
    """[rows, count] numbers without repeats in a row, ascending."""
    if rows * below <= 1 << 26:
        chosen = torch.rand(rows, below, device="cuda").topk(count, dim=-1).indices
    else:
        chosen = torch.stack([torch.randperm(below, device="cuda")[:count] for _ in range(rows)])
    return chosen.sort(dim=-1).values


# Each builder gives (function, inputs of one set, {name of a further peer: function}).

def scores_of(rows, blocks, heads, hd, dtype):
    scale = hd ** -0.5

    def score(q, keys):
        return torch.relu(torch.einsum("rhd,bd->rhb", q, keys.to(q.dtype)).float()).sum(1) * scale

    return score, lambda: (randn(rows, heads, hd, dtype=dtype),
                           randn(blocks, hd, dtype=torch.bfloat16)), {}


def qsa_score(k):
    return scores_of(1, k["blocks"], k["heads"], k["hd"], torch.float32)


def qsa_score_rows(k):
    return scores_of(k["rows"], k["blocks"], k["heads"], k["hd"], torch.float32)


def qsa_score_rows_tc(k):
    """The query in two bf16 parts, as the interface says."""
    _, inputs, _ = scores_of(k["rows"], k["blocks"], 4, 128, torch.float32)

    def score(q, keys):
        high = q.to(torch.bfloat16)
        low = (q - high.float()).to(torch.bfloat16)
        dots = (torch.einsum("rhd,bd->rhb", high, keys).float() +
                torch.einsum("rhd,bd->rhb", low, keys).float())
        return torch.relu(dots).sum(1) * 128 ** -0.5

    def one_part(q, keys):
        dots = torch.einsum("rhd,bd->rhb", q.to(torch.bfloat16), keys)
        return torch.relu(dots.float()).sum(1) * 128 ** -0.5

    return score, inputs, {"torch eager, query in bf16": one_part}


def dsa_index_scores(k):
    pools, scale = -(-k["len"] // k["kpool"]), k["dim"] ** -0.5
    complete = k["len"] // k["kpool"]

    def score(q, keys, weights, candidates):
        dots = torch.relu(torch.einsum("qhd,pd->qhp", q, keys) * scale)
        total = torch.einsum("qhp,qh->qp", dots, weights)
        return total.masked_fill(~candidates, -torch.finfo(torch.float32).max)

    def inputs():
        candidates = torch.arange(pools, device="cuda")[None] < complete
        return (randn(k["rows"], k["heads"], k["dim"]), randn(pools, k["dim"]),
                randn(k["rows"], k["heads"]), candidates.expand(k["rows"], pools).contiguous())

    return score, inputs, {}


def topk_of(rows, columns, count):
    return (lambda scores: torch.topk(scores, count, dim=-1).indices.to(torch.int32),
            lambda: (randn(rows, columns),), {})


def dsa_topk_pools(k):
    return topk_of(k["rows"], k["pools"], min(k["select"], k["pools"]))


def qsa_topk_rows(k):
    complete = (k["pos"] + k["rows"]) // k["ratio"]
    return topk_of(k["rows"], complete, min(k["topk"], complete))


def dsa_topk_to_mask(k):
    def mask(ids, out):
        return out.zero_().scatter_(1, ids, 1)

    return mask, lambda: (distinct(k["rows"], k["len"], min(k["width"], k["len"])),
                          torch.empty(k["rows"], k["len"], dtype=torch.uint8, device="cuda")), {}


def page_table(sequences, length, block):
    pages = -(-length // block)
    return torch.randperm(sequences * pages, device="cuda").view(sequences, pages)


def glm5next_dsa_mla_decode_fp8(k):
    """One buffer for K and V: `kv=one`. FP8 latents are widened in the gather."""
    seqs, heads, latent, block = k["seqs"], k["heads"], k.get("latent", 512), k["block"]
    lens = k["len"] * seqs if len(k["len"]) == 1 else k["len"]
    if len(set(lens)) > 1 or k["kv"] != "one":
        raise ValueError("sequences of different lengths, or two caches")
    attended = min(k["topk"] + k["kpool"] - 1, lens[0])
    k_scale, v_scale, scale = k["kscale"], k["vscale"], k.get("scale", latent ** -0.5)

    def gather(cache, table, ids):
        slots = table.gather(1, ids // block) * block + ids % block
        raw = cache.view(torch.uint8).view(-1, latent).index_select(0, slots.flatten())
        return raw.view(torch.float8_e4m3fn).view(seqs, attended, latent).to(torch.bfloat16)

    def decode(q, cache, table, ids):
        tokens = gather(cache, table, ids)
        weights = torch.softmax((torch.einsum("shl,stl->sht", q, tokens) *
                                 (scale * k_scale)).float(), dim=-1)
        return torch.einsum("sht,stl->shl", weights.to(torch.bfloat16), tokens) * v_scale

    def sdpa(q, cache, table, ids):
        tokens = gather(cache, table, ids)[:, None]
        return F.scaled_dot_product_attention(q[:, None], tokens, tokens,
                                              scale=scale * k_scale)[:, 0] * v_scale

    def inputs():
        table = page_table(seqs, lens[0], block)
        cache = randn(table.numel() * block, latent).to(torch.float8_e4m3fn)
        return (randn(seqs, heads, latent, dtype=torch.bfloat16), cache, table,
                distinct(seqs, lens[0], attended))

    return decode, inputs, {"torch sdpa over gathered keys": sdpa}


def grouped_attention(q, keys, values, scale):
    """q [rows, nq, hd]; keys, values [rows, tokens, nkv, hd]. A group's query heads share a KV head."""
    rows, nq, hd = q.shape
    nkv = keys.shape[2]
    grouped = q.view(rows, nkv, nq // nkv, hd)
    scores = torch.einsum("rgqd,rtgd->rgqt", grouped, keys).float() * scale
    weights = torch.softmax(scores, dim=-1).to(torch.bfloat16)
    return torch.einsum("rgqt,rtgd->rgqd", weights, values).reshape(rows, nq, hd)


def grouped_sdpa(q, keys, values, scale):
    rows, nq, hd = q.shape
    nkv = keys.shape[2]
    return F.scaled_dot_product_attention(q.view(rows, nkv, nq // nkv, hd), keys.transpose(1, 2),
                                          values.transpose(1, 2), scale=scale).reshape(rows, nq, hd)


def paged(k, rows, ids_of, length):
    nq, nkv, hd, block, scale = k["nq"], k["nkv"], k["hd"], k["block"], k["scale"]

    def gather(cache, slots):
        return cache.index_select(0, slots.flatten()).view(*slots.shape, nkv, hd)

    def slots_of(table, ids):
        return table[ids // block] * block + ids % block

    def attention(q, k_cache, v_cache, table, ids):
        slots = slots_of(table, ids)
        return grouped_attention(q, gather(k_cache, slots), gather(v_cache, slots), scale)

    def sdpa(q, k_cache, v_cache, table, ids):
        slots = slots_of(table, ids)
        return grouped_sdpa(q, gather(k_cache, slots), gather(v_cache, slots), scale)

    def inputs():
        table = page_table(1, length, block)[0]
        cache = (table.numel() * block, nkv, hd)
        return (randn(rows, nq, hd, dtype=torch.bfloat16), randn(*cache, dtype=torch.bfloat16),
                randn(*cache, dtype=torch.bfloat16), table, ids_of())

    return attention, inputs, {"torch sdpa over gathered keys": sdpa}


def paged_decode_attn(k):
    return paged(k, 1, lambda: torch.arange(k["len"], device="cuda")[None], k["len"])


def qsa_prefill_attn(k):
    """Every row attends topk blocks; the tail, less than one block, is left out."""
    complete, ratio = k["pos"] // k["ratio"], k["ratio"]

    def ids():
        blocks = distinct(k["rows"], complete, min(k["topk"], complete))
        return (blocks[..., None] * ratio + torch.arange(ratio, device="cuda")).flatten(1)

    return paged(k, k["rows"], ids, k["pos"] + k["rows"])


def qsa_gather(k):
    block = k["block"]

    def gather(k_cache, v_cache, table, ids):
        slots = table[ids // block] * block + ids % block
        return k_cache.index_select(0, slots), v_cache.index_select(0, slots)

    def inputs():
        table = page_table(1, k["len"], block)[0]
        cache = (table.numel() * block, k["nkv"], k["hd"])
        return (randn(*cache, dtype=torch.bfloat16), randn(*cache, dtype=torch.bfloat16), table,
                distinct(1, k["len"], k["count"])[0])

    return gather, inputs, {}


def dsa_mla_masked_attn(k):
    rows, heads, length, scale = k["rows"], k["heads"], k["len"], k["scale"]

    def attention(q, keys, values, mask):
        scores = torch.einsum("qhd,shd->hqs", q.float(), keys.float()) * scale
        weights = torch.softmax(scores.masked_fill(~mask[None], -math.inf), dim=-1)
        return torch.einsum("hqs,shd->qhd", weights, values.float())

    def sdpa(q, keys, values, mask):
        out = F.scaled_dot_product_attention(q.transpose(0, 1)[None], keys.transpose(0, 1)[None],
                                             values.transpose(0, 1)[None], attn_mask=mask[None, None],
                                             scale=scale)
        return out[0].transpose(0, 1).float()

    def inputs():
        return (randn(rows, heads, k["qdim"], dtype=torch.bfloat16),
                randn(length, heads, k["qdim"], dtype=torch.bfloat16),
                randn(length, heads, k["vdim"], dtype=torch.bfloat16),
                torch.rand(rows, length, device="cuda") < 0.5)

    return attention, inputs, {"torch sdpa with a mask": sdpa}


BUILDERS = {f.__name__: f for f in (
    qsa_score, qsa_score_rows, qsa_score_rows_tc, dsa_index_scores, dsa_topk_pools, qsa_topk_rows,
    dsa_topk_to_mask, glm5next_dsa_mla_decode_fp8, paged_decode_attn, qsa_prefill_attn, qsa_gather,
    dsa_mla_masked_attn)}


def bytes_of(values):
    return sum(v.numel() * v.element_size() for v in values if isinstance(v, torch.Tensor))


def touched(inputs, outputs):
    """Caches are only read where a selection points: they do not count as touched here."""
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    small = [v for v in inputs if bytes_of([v]) <= 4 * max(bytes_of(outputs), 1 << 20)]
    return max(bytes_of(small) + bytes_of(outputs), 1)


def event_ms(call):
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    call()
    end.record()
    end.synchronize()
    return start.elapsed_time(end)


def recorded(function, sets, launches):
    """Replays the launches from a graph, or None where they cannot be recorded."""
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    try:
        with torch.cuda.stream(stream):
            for values in sets:
                function(*values)
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, stream=stream):
            kept = [function(*sets[i % len(sets)]) for i in range(launches)]
        del kept
        return graph.replay
    except RuntimeError:
        torch.cuda.synchronize()
        return None


def measure(function, sets):
    for values in sets:
        function(*values)
    torch.cuda.synchronize()
    ms = max(event_ms(lambda: function(*sets[0])), 1e-3)
    wanted = int(min(max(SAMPLE_MS / ms, len(sets)), LAUNCHES_MAX))
    launches = max(wanted // len(sets), 1) * len(sets)
    samples = int(min(max(CASE_MS / (ms * launches), SAMPLES_MIN), SAMPLES_MAX))
    replay = recorded(function, sets, launches)

    def calls():
        for i in range(launches):
            function(*sets[i % len(sets)])

    run = replay or calls
    run()
    us = [1000 * event_ms(run) / launches for _ in range(samples)]
    return {"median_us": statistics.median(us), "least_us": min(us), "most_us": max(us),
            "samples": samples, "launches": launches, "sets": len(sets),
            "clock": "device events around a graph" if replay else "device events around calls"}


def peers(text):
    op, keys = parse(text)
    if op not in BUILDERS:
        yield "torch", None, "no peer for this operation"
        return
    function, inputs, further = BUILDERS[op](keys)
    first = inputs()
    size = touched(first, function(*first))
    l2 = torch.cuda.get_device_properties(0).L2_cache_size
    count = min(max(math.ceil(2 * l2 / size), 2), SETS_MAX)
    room = torch.cuda.mem_get_info()[0] // 3
    count = max(min(count, room // max(bytes_of(first), 1)), 1)
    sets = [first] + [inputs() for _ in range(count - 1)]
    yield "torch eager", measure(function, sets), None
    for name, other in further.items():
        yield name, measure(other, sets), None
    yield "torch.compile", measure(torch.compile(function, dynamic=False), sets), None


def main():
    cases = sys.argv[1:]
    if cases == ["--probe"]:
        return
    torch.manual_seed(1)
    device = torch.cuda.get_device_name(0)
    for text in cases:
        try:
            for name, figures, skipped in peers(text):
                line = {"case": text, "peer": name, "device": device, "torch": torch.__version__}
                line |= figures if figures else {"skipped": skipped}
                print(json.dumps(line), flush=True)
        except Exception as error:  # one peer that does not work must not hide the others
            reason = f"{type(error).__name__}: {error}".splitlines()[0][:150]
            print(json.dumps({"case": text, "peer": "torch", "device": device, "skipped": reason}),
                  flush=True)
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
