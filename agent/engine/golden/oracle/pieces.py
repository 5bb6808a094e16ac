"""A vocabulary of SentencePiece for the tiny GGUF file of Gemma 3, and what SentencePiece makes of texts: `pieces.json`.

    python -m oracle.pieces          # with the package sentencepiece, 0.2.1 for the committed bytes
"""

import io
import json

from . import text

PATH = text.GOLDEN / "tiny-gguf" / "pieces.json"
TEXTS = [
    *text.CORPUS.splitlines(), text.CORPUS, "", " ", "  ", "   a", "a   b", "\n", "\n\n\n", "\ttab", "été, à l'œuvre",
    "你好", "🦙 and 👩‍👧", "▁", "a<s>b</s>c", "x" * 100, "def f(x):\n    return x\n\n\nclass A:\n",
]


def make():
    import sentencepiece
    contents = io.BytesIO()
    # As Gemma's: no space before a text, runs of spaces and newlines are one piece, bytes for what has none.
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(text.CORPUS.splitlines()), model_writer=contents, model_type="bpe", vocab_size=text.VOCAB,
        byte_fallback=True, add_dummy_prefix=False, remove_extra_whitespaces=False, normalization_rule_name="identity",
        control_symbols=["<end_of_turn>"], user_defined_symbols=["\n\n", "▁▁", "▁▁▁▁"], minloglevel=2)
    model = sentencepiece.SentencePieceProcessor(model_proto=contents.getvalue())
    pieces = []
    for id in range(model.vocab_size()):
        of = 2 if model.is_unknown(id) else 3 if model.is_control(id) else 6 if model.is_byte(id) else 1
        piece = model.id_to_piece(id)
        if piece in ("\n\n", "▁▁", "▁▁▁▁"):
            of, piece = 4, piece.replace("▁", " ")
        pieces.append([piece, model.get_score(id), of])
    # Structure in a text is read as such by engines, and as letters by SentencePiece.
    texts = [[one, model.encode(one)] for one in TEXTS if "<s>" not in one]
    PATH.write_text(json.dumps({"pieces": pieces, "texts": texts}, ensure_ascii=False) + "\n")
    print(f"{PATH.name}: {len(pieces)} pieces, {len(texts)} texts")


def read():
    return json.loads(PATH.read_text())["pieces"]


if __name__ == "__main__":
    make()
