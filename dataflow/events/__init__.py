"""The events of a run: what barriers, tasks and the job did, and when. The one source of every figure and picture.

``kinds`` lists the kinds of events and the columns of their table. ``recorder`` has the buffers in which tasks, gates,
part writers and the job record; ``event_log`` keeps what was drained, within a bound. ``recorded`` says what events are
of, and ``plan_shape`` is the plan of the job as plain data. The runtime records, and imports nothing else of this;
sentences and pictures are made in ``dataflow.views``.
"""
