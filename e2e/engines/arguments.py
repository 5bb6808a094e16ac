"""Holds the arguments of rendered pods against the parser of an engine and its checks of them, as it is installed here:

    arguments.py sglang|vllm FOLDER MODEL

FOLDER has what `pd-operator render` printed, a file for each deployment; MODEL stands in for the volume of the model. A line for
each set that the engine refuses, then how many sets there were; 1 if one was refused.
"""

import contextlib
import io
import pathlib
import sys

import yaml


def sglang():
    from sglang.srt.server_args import prepare_server_args

    def check(argv):
        args = prepare_server_args(argv)
        args.resolve_once()
        args.check_server_args()
    return "--model-path", check


def vllm():
    from vllm.entrypoints.launchers.cli_args import make_arg_parser, validate_parsed_serve_args
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser = make_arg_parser(FlexibleArgumentParser())

    def check(argv):
        validate_parsed_serve_args(parser.parse_args(argv))
    return "--model", check


def sets(folder, model_flag, model):
    for path in sorted(pathlib.Path(folder).iterdir()):
        for document in yaml.safe_load_all(path.read_text()):
            if document["kind"] != "Pod":
                continue
            agent = document["spec"]["containers"][0]
            argv = [word.replace("$(POD_IP)", "127.0.0.1") for word in agent["args"]]
            argv[argv.index(model_flag) + 1] = model
            yield f"{path.stem} {document['metadata']['name']}", argv


def main():
    engine, folder, model = sys.argv[1:]
    model_flag, check = {"sglang": sglang, "vllm": vllm}[engine]()
    count, refused = 0, 0
    for name, argv in sets(folder, model_flag, model):
        count += 1
        said = io.StringIO()
        try:
            with contextlib.redirect_stderr(said):
                check(argv)
        except (Exception, SystemExit) as error:
            refused += 1
            words = said.getvalue().strip().splitlines()[-1:] or [repr(error)]
            print(f"REFUSED {name}: {words[0]}\n  {' '.join(argv)}")
    print(f"{count} sets, {refused} refused")
    sys.exit(refused > 0)


main()
