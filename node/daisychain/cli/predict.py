"""`daisychain predict JOB rows.csv`: use a trained table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from daisychain.cli.console import err, errors_told, out, print_json
from daisychain.cli.options import JobsFolder, Json, StateFolder


def predict(
    job: Annotated[str, typer.Argument(help="A job in the jobs folder, or its folder")],
    rows: Annotated[Path, typer.Argument(help="A CSV with the columns that were trained on")],
    out_file: Annotated[
        Path | None, typer.Option("--out", help="Where the predictions go [default: ROWS-predicted.csv]")
    ] = None,
    state_folder: StateFolder = None,
    jobs_folder: JobsFolder = None,
    json: Json = False,
) -> None:
    """Write the rows with a prediction for each."""
    with errors_told():
        from daisychain.config import load_config
        from daisychain.errors import JobError

        config = load_config({"state_folder": state_folder, "jobs_folder": jobs_folder})
        folders = (config.jobs_folder / job, Path(job))
        folder = next((folder for folder in folders if folder.is_dir()), None)
        if folder is None:
            raise JobError(
                job, f"no such folder, neither in {config.jobs_folder} nor here", "Name a job's folder"
            )
        model = folder / "result" / "model.safetensors"
        if not model.is_file():
            raise JobError(job, "it has no trained model yet", f"Train it first: daisychain run {job}")
        if not rows.is_file():
            raise JobError(str(rows), "there is no such file", "Name a CSV with the rows to predict")
        target = out_file or rows.with_name(f"{rows.stem}-predicted.csv")
        with err().status("loading the model"):
            from daisychain.trainer.jobs.predict import predict_rows

            count = predict_rows(model, rows, target)
        if json:
            print_json({"rows": count, "out": str(target)})
        else:
            out().print(f"{count} rows predicted: {target}", markup=False)
