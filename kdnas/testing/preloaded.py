"""What the server of :mod:`kdnas.testing.forked` loads: what takes long, of libraries and of ours.

Not all of the service: a runner is to find that ``api.jobs.runner`` has not been loaded yet.
"""

from __future__ import annotations

import gc
import importlib
import io
import os

os.environ["HF_HUB_OFFLINE"] = "1"  # which the hub's library reads when it loads

for name in (
    *("pydantic", "yaml", "structlog", "typer", "filelock", "fsspec", "psutil"),
    *("rich.console", "rich.progress", "rich.table", "rich.live"),
    *("sqlalchemy.orm", "sqlalchemy.dialects.sqlite", "sqlalchemy.dialects.postgresql", "psycopg"),
    *("alembic.command", "alembic.autogenerate"),
    *("scipy.optimize", "scipy.stats", "sklearn.metrics", "seqeval.metrics", "pyarrow.parquet"),
    *("torch", "safetensors.torch", "matplotlib.backends.backend_agg", "mpl_toolkits.mplot3d"),
    *("tensorboardX", "fastapi", "uvicorn", "huggingface_hub.hf_api", "torch.profiler"),
):
    importlib.import_module(name)

transformers = importlib.import_module("transformers")
for name in ("AutoConfig", "AutoModel", "AutoTokenizer", "BertModel", "Trainer"):
    getattr(transformers, name)  # each is loaded when it is asked for

for name in (
    *("kdnas.cli.main", "kdnas.db.migrate", "kdnas.distill.full", "kdnas.latency.table"),
    *("api.searches.run", "api.searches.reading", "api.distillations.run", "api.evaluations.run"),
    *("controller.strategies", "workers.backend", "workers.mini_kd"),
):
    importlib.import_module(name)
importlib.import_module("sqlalchemy.orm").configure_mappers()

# What each process would work out anew, which takes longer than a tiny training: the patterns of
# the names of weights, the fonts and the parts of a plot.
mapping = importlib.import_module("transformers.conversion_mapping")
mapping.get_checkpoint_conversion_mapping("bert")
figure = importlib.import_module("matplotlib.figure").Figure(layout="constrained")
figure.subplots().semilogy([1, 10])
figure.savefig(io.BytesIO(), format="png")

gc.freeze()  # what all processes share is not to be copied by the first collection of each
