"""Writes captured cases of the sparse decode and of selections for `attest judge`.

    python3 examples/capture_decode.py FOLDER

Needs torch and safetensors. The outputs are computed here in torch's float32 on the CPU; in real use
they come from the kernel under test, on whatever device it runs.
"""
import sys

import torch
from safetensors.torch import save_file


def capture(path, case, inputs, outputs):
    """Inputs under the operation's argument names, outputs as got.NAME, all dense."""
    tensors = {name: t.detach().contiguous().cpu() for name, t in inputs.items()}
    tensors |= {f"got.{name}": t.detach().contiguous().cpu() for name, t in outputs.items()}
    save_file(tensors, path, metadata={"case": case})


def decode(q, latents, table, lens, selection, scale, kv_scale):
    """q [seqs, heads, 512]; latents [pages, block, 512] e4m3; zeros where nothing is attended."""
    out = torch.zeros(q.shape, dtype=torch.bfloat16)
    for s in range(q.shape[0]):
        ids = selection[s][(selection[s] >= 0) & (selection[s] < lens[s])].long()
        if not len(ids):
            continue
        block = latents.shape[1]
        rows = latents[table[s, ids // block].long(), ids % block].float()
        p = torch.softmax(q[s].float() @ rows.T * (scale * kv_scale), dim=-1)
        out[s] = (p @ rows * kv_scale).to(torch.bfloat16)
    return out


def decode_files(folder):
    torch.manual_seed(7)
    lens, block, heads, width = torch.tensor([37, 9], dtype=torch.int32), 16, 3, 16 + 4 - 1
    # Heads strided in a larger tensor, as a serving engine holds them: capture() makes them dense.
    q = torch.randn(2, 2 * heads, 512).to(torch.bfloat16)[:, ::2]
    latents = torch.randn(4, block, 512).to(torch.float8_e4m3fn)
    table = torch.tensor([[2, 0, 3], [1, -1, -1]], dtype=torch.int32)
    selection = torch.full((2, width), -1, dtype=torch.int32)
    selection[0, :17] = torch.tensor(list(range(8, 24)) + [36], dtype=torch.int32)
    selection[1, 3:12] = torch.arange(9, dtype=torch.int32)
    case = ("glm5next_dsa_mla_decode_fp8:seqs=2,heads=3,len=[37,9],block=16,kpool=4,topk=16,"
            "pages=identity,kv=one,scale=0.044194173,kscale=0.25,vscale=0.25,spare=0")
    inputs = {"q": q, "k_cache": latents.flatten(), "block_tables": table, "seq_lens": lens,
              "sel_indices": selection}
    right = decode(q, latents, table, lens, selection, 0.044194173, 0.25)
    capture(f"{folder}/decode.safetensors", case, inputs, {"out": right})
    # The mistake of taking 576, the width with a rotary part, for the latent's 512.
    wrong = decode(q, latents, table, lens, selection, 576**-0.5, 0.25)
    capture(f"{folder}/decode_scale_576.safetensors", case, inputs, {"out": wrong})


def selection_files(folder):
    torch.manual_seed(8)
    scores = torch.randn(5, 40)
    case = "dsa_topk_pools:rows=5,pools=40,select=8"
    best = torch.sort(scores, dim=-1, descending=True, stable=True).indices[:, :8].to(torch.int32)
    capture(f"{folder}/topk.safetensors", case, {"scores": scores}, {"selected": best})
    best[3, 7] = torch.sort(scores[3], descending=True).indices[8]
    capture(f"{folder}/topk_ninth.safetensors", case, {"scores": scores}, {"selected": best})


def unscored_files(folder):
    """What a fused kernel selected: its scores never leave the registers, so they are not captured."""
    torch.manual_seed(9)
    rows, heads, hd, blocks, k, first = 64, 4, 128, 2048, 512, 8127
    q = torch.randn(rows, heads, hd)
    keys = torch.randn(blocks, hd).to(torch.bfloat16)
    case = (f"qsa_score_rows:rows={rows},pos={first},ratio=4,blocks={blocks},heads={heads},hd={hd}")
    for name, queries in (("selected", q), ("selected_plain_bf16", q.to(torch.bfloat16).float())):
        scores = torch.relu(torch.einsum("rhd,bd->rhb", queries, keys.float())).sum(1) * hd**-0.5
        for r in range(rows):  # row r sees the blocks that are complete at its position
            scores[r, (first + r + 1) // 4:] = float("-inf")
        best = torch.topk(scores, k, dim=-1, sorted=False).indices.to(torch.int32)
        capture(f"{folder}/{name}.safetensors", case, {"q": q, "block_keys": keys},
                {"selected": best})


decode_files(sys.argv[1])
selection_files(sys.argv[1])
unscored_files(sys.argv[1])
