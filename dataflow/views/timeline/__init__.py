"""Timelines: what barriers did, drawn as lanes of tasks and inputs over time.

Files: ``timeline`` (the public class), ``section`` (one run in it), ``page`` (HTML); ``one_checkpoint`` with
``checkpoint_bar``, and ``whole_run`` with ``row_rates`` (the two pictures); ``barriers``, ``blocked`` and ``strips``
(what is drawn in lanes); ``lanes`` (which lanes there are) and ``marks`` (what is stressed); ``sheet`` and ``scale``
(where things are); ``run_facts`` and ``run_sentences`` (of whole runs).
"""

from dataflow.views.timeline.timeline import Timeline, compare_timelines, timeline_of

__all__ = ["Timeline", "compare_timelines", "timeline_of"]
