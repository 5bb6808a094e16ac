"""What transformers computes with a checkpoint, and whether that is fit to compare with.

`golden.safetensors` has

* `tokens`: a prompt, then tokens that are each the largest logit after those before;
* `prompt_len`: how many of them are the prompt;
* `rows`, if not all are kept: which rows `logits` has, ascending;
* `logits`: a row for each token (or each of `rows`), the distribution of the next one. Rows of the prompt come from one
  forward pass, the rest one by one from the cache.
"""

import dataclasses

import torch

from . import text

# How far from a tie a choice of experts or of a token must be: what rounding moves is a hundred times less.
CHOICE_MARGIN = 1e-4
TOKEN_MARGIN = 3e-4
# How many different tokens the text of a committed checkpoint has at least.
LIVELY = 8
# How far one pass over all tokens may be from the cache, of the row's largest logit.
AGREEMENT = 5e-5
# Around the ends of windows (24, 80), of blocks (64) and of the prompt, and some between.
ROWS_OF_PROMPT = (0, 1, 22, 23, 24, 25, 62, 63, 64, 65, 78, 79, 80, 81, 103, 104, 126, 127, 128, 129)


class Unfit(Exception):
    """With this seed a comparison would not say much, or would hang on rounding."""


@dataclasses.dataclass
class Run:
    """A prompt and greedy steps: rows of logits, and of the states after the last norm."""

    tokens: list
    prompt: int
    logits: torch.Tensor
    hidden: torch.Tensor


def run(model, prompt, steps, cache=None):
    tokens, logits, hidden = list(prompt), [], []
    with torch.no_grad():
        out = model(torch.tensor([prompt]), past_key_values=cache, use_cache=True, output_hidden_states=True)
        for _ in range(steps):
            logits.append(out.logits[0])
            hidden.append(out.hidden_states[-1][0])
            tokens.append(int(logits[-1][-1].argmax()))
            out = model(torch.tensor([tokens[-1:]]), past_key_values=out.past_key_values, use_cache=True,
                        output_hidden_states=True)
    logits.append(out.logits[0])
    hidden.append(out.hidden_states[-1][0])
    return Run(tokens, len(prompt), torch.cat(logits).float(), torch.cat(hidden))


def kept(run):
    """Rows enough to find a fault by; what they leave out, the steps after them rest on."""
    ends = range(run.prompt - 2, run.prompt + 8)
    steps = range(run.prompt + 8, len(run.tokens), 8)
    wanted = {*ROWS_OF_PROMPT, *ends, 191, 192, 193, *steps, len(run.tokens) - 1}
    return [row for row in range(len(run.tokens)) if row in wanted]


def tensors(run, rows):
    """The contents of `golden.safetensors`; `rows` None for all."""
    out = {
        "tokens": torch.tensor(run.tokens, dtype=torch.int32),
        "prompt_len": torch.tensor([run.prompt], dtype=torch.int32),
    }
    if rows is None:
        return {**out, "logits": run.logits.contiguous()}
    return {**out, "logits": run.logits[rows].contiguous(), "rows": torch.tensor(rows, dtype=torch.int32)}


def check(model, run, distinct):
    """Raises `Unfit` unless one pass agrees with the cache, choices are clear, and enough tokens are distinct."""
    with torch.no_grad(), Choices(model) as choices:
        whole = model(torch.tensor([run.tokens]), use_cache=False).logits[0].float()
    scale = run.logits.abs().amax(1)
    apart = float(((whole - run.logits).abs().amax(1) / scale).max())
    best = run.logits.topk(2).values
    greedy = float(((best[:, 0] - best[:, 1]) / scale)[run.prompt - 1 :].min())
    found = len(set(run.tokens[run.prompt :]))
    report = f"{found} distinct tokens, one pass {apart:.0e} from the cache, tokens {greedy:.0e} from a tie"
    if choices.routers:
        report += f", experts {choices.margin:.0e}"
    if apart > AGREEMENT or greedy < TOKEN_MARGIN or choices.margin < CHOICE_MARGIN or found < distinct:
        raise Unfit(report)
    return report


class Choices:
    """Watches the routers of a model; `margin` is the least distance of a choice from another one."""

    def __init__(self, model):
        self.routers = [module for module in model.modules() if type(module).__name__.endswith("Router")]
        self.margin = float("inf")

    def __enter__(self):
        self.hooks = [router.register_forward_hook(self.watch) for router in self.routers]
        return self

    def __exit__(self, *_):
        for hook in self.hooks:
            hook.remove()

    def watch(self, router, _inputs, output):
        scores = output[0].float()
        groups = getattr(router, "num_group", None)
        if hasattr(router, "e_score_correction_bias"):
            scores = scores.sigmoid() + router.e_score_correction_bias
            scores = self.within_groups(router, scores, lambda members: members.topk(2).values.sum(-1))
        elif groups and router.topk_method == "group_limited_greedy":
            scores = self.within_groups(router, scores.softmax(-1), lambda members: members.amax(-1))
        self.note(scores, router.top_k)

    def within_groups(self, router, scores, score_of_group):
        members = scores.unflatten(-1, (router.num_group, -1))
        of_groups = score_of_group(members)
        if router.topk_group < router.num_group:
            self.note(of_groups, router.topk_group)
        best = torch.zeros_like(of_groups).scatter(1, of_groups.topk(router.topk_group).indices, 1.0)
        return torch.where(best[..., None] > 0, members, float("-inf")).flatten(1)

    def note(self, scores, count):
        if count < scores.shape[-1]:
            best = scores.topk(count + 1).values
            self.margin = min(self.margin, float((best[:, count - 1] - best[:, count]).min()))
