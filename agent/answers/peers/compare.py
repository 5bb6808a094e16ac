"""What pd-answers reads in answers beside what SGLang and vLLM read, whole and streamed. `make peers-answers` runs it.

    python compare.py --take-apart BINARY --sglang FOLDER --templates FOLDER

Answers are the same when reasoning, text and calls are: arguments as JSON, and all else but for white space, of which each
family of parsers drops other parts. A stream is the same when its deltas join to the same: a token each, and cut in two
at every token. Differences that `differences.md` argues are expected, and each of them has to be there.
"""

import argparse
import collections
import fnmatch
import functools
import itertools
import json
import pathlib
import subprocess
import sys

import canonical
import peers
import texts

WAYS = ["whole", "each", "two"]


def take_apart(binary, given):
    """The answers of pd-answers, each of a text and pieces of it."""
    lines = "".join(
        json.dumps(dict(reasoning=text.reasoning, tools=text.tools, schemas=texts.SCHEMAS, pieces=pieces)) + "\n"
        for text, pieces in given
    )
    done = subprocess.run([binary], input=lines, stdout=subprocess.PIPE, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def comparable(answer):
    def arguments(written):
        try:
            return json.loads(written)
        except ValueError:
            return ("no JSON", written)

    if "failure" in answer:
        return answer
    calls = [(call["name"], arguments(call["arguments"])) for call in answer["calls"]]
    return " ".join(answer["reasoning"].split()), " ".join(answer["text"].split()), calls


def argued():
    """Rows of `differences.md`: row of the table, peer, way, and a pattern of names."""
    lines = pathlib.Path(__file__).with_name("differences.md").read_text().splitlines()
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("| `")]
    for rows, peer, ways, names in cells:
        for row, way, name in itertools.product(rows.split(", "), ways.split(", "), names.split("; ")):
            yield row.strip("`"), peer, way, name


def matches(text, pattern):
    return fnmatch.fnmatchcase(text.name, pattern)


def differences(all_texts, ours, peer):
    """Of a peer: text, way, and its answer."""
    for text, own in zip(all_texts, ours):
        if not peer.reads(text):
            continue
        pieces = peers.tokenizer_of(text).split(text.text)
        ways = {
            "whole": [lambda: peer.whole(text)],
            "each": [lambda: peer.streamed(text, pieces)],
            "two": [functools.partial(peer.streamed, text, halves) for halves in peers.halves(pieces)],
        }
        for way, reads in ways.items():
            outcomes = map(peers.outcome, reads)
            different = next((theirs for theirs in outcomes if comparable(theirs) != comparable(own)), None)
            if different:
                yield text, way, different


def check_streams(binary, all_texts, ours):
    """That pd-answers reads of any stream what it reads of the whole."""
    cuts = []
    for text, own in zip(all_texts, ours):
        characters = list(text.text)
        cuts += [(text, own, pieces) for pieces in [characters, *peers.halves(characters)]]
    for (text, own, pieces), answer in zip(cuts, take_apart(binary, [(text, pieces) for text, _, pieces in cuts])):
        assert answer == own, f"{text} in {pieces} is {answer}, and whole {own}"
    print(f"{len(all_texts)} texts, {len(cuts)} streams of them: pd-answers reads of each what it reads of the whole")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--take-apart", required=True)
    parser.add_argument("--sglang", required=True)
    parser.add_argument("--templates", type=pathlib.Path, required=True)
    args = parser.parse_args()
    all_texts = texts.texts() + canonical.texts(args.templates)
    ours = take_apart(args.take_apart, [(text, [text.text]) for text in all_texts])
    check_streams(args.take_apart, all_texts, ours)

    expected, needed, failures = list(argued()), set(), []
    table = collections.defaultdict(list)
    rows = list(dict.fromkeys(text.row for text in all_texts))
    for peer in [peers.Sglang(args.sglang, texts.SCHEMAS), peers.Vllm(texts.SCHEMAS)]:
        counted = collections.Counter()
        for text, way, theirs in differences(all_texts, ours, peer):
            counted[text.row, way] += 1
            argues = {row for row in expected if row[:3] == (text.row, peer.name, way) and matches(text, row[3])}
            needed |= argues
            if not argues:
                own = ours[all_texts.index(text)]
                failures.append(f"{text.row} | {peer.name} | {way} | {text.name}: {text.text!r}\n{own}\n{theirs}")
        read = collections.Counter(text.row for text in all_texts if peer.reads(text))
        for row in rows:
            cells = [f"{read[row] - counted[row, way]} / {read[row]}" if read[row] else "–" for way in WAYS]
            table[row] += cells
    failures += [f"{row} is argued and is no difference" for row in expected if row not in needed]
    print("| | " + " | ".join(f"{peer} {way}" for peer in ["SGLang", "vLLM"] for way in WAYS) + " |")
    print("|---" * 7 + "|")
    for row, cells in table.items():
        print(f"| `{row}` | {' | '.join(cells)} |")
    sys.exit("\n".join(failures) if failures else 0)


main()
