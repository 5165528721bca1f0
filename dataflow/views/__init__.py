"""What people see of a run: facts of a checkpoint, sentences, timelines, pictures of pipelines.

All of it is computed from events and the plan beside them (``dataflow.events``), and drawn by ``dataflow.drawing``.
"""
