"""A changed configuration, or several over one input: what is stale is done, and each output is shown."""

from __future__ import annotations

from narrowing import checked

from streamdr.flows.parameters import Configuration
from streamdr.flows.reprocess import reprocess
from streamdr.workflow.reports import ReprocessReport


def test_configurations_over_one_input_share_what_was_read(reporting, place):
    configs = [
        Configuration.load(
            "config.yaml",
            [f"method.n_components={k}", f"output={{model: out/m{k}.zarr, embedding: out/z{k}.zarr}}"],
        )
        for k in (2, 3)
    ]
    report = checked(ReprocessReport, reprocess(configs))
    assert [each.run.fit.summary["n_components"] for each in report.runs] == [2, 3]
    assert report.runs[0].run.fit.bytes_read == 200 * 5 * 8
    assert report.runs[1].run.fit.bytes_read == 0
    run = reporting.runs(name="reprocess")[0]
    stages = ["reprocess", "summarise", "summarise", "verify", "verify"]
    assert reporting.stages(run["id"], expected=5) == stages
