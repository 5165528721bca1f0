"""Snapshots of any graph of processes, by the algorithm of Chandy and Lamport, *Distributed Snapshots* (1985).

The package is the checkpoint algorithm of the engine without pipelines, for experiments, proofs and teaching. A token
leaves ``p``, and ``q`` begins a snapshot before it arrives: the snapshot has it in the channel.

>>> from dataflow.snapshots.processes import Process, ProcessGraph, action
>>> from dataflow.snapshots.runs import System
>>> class Holder(Process):
...     tokens = 1
...     @action
...     def send(self, to: str):
...         self.tokens -= 1
...         return {to: "token"}
...     def receive(self, sender: str, message: str) -> None:
...         self.tokens += 1
>>> run = System(ProcessGraph().add("p", Holder()).add("q", Holder()).connect("p", "q"))
>>> run.act("p", "send", "q")
>>> number = run.snapshot("q")
>>> run.deliver("q", "p"), run.deliver("p", "q"), run.deliver("p", "q")
(Marker(snapshot=0), 'token', Marker(snapshot=0))
>>> run.snapshots[number].channel("p", "q")
('token',)

Modules, in the order in which a reader needs them:

1. ``processes``: ``Process``, ``action`` and ``ProcessGraph``, which define a system; ``GlobalState``, which a snapshot
   records.
2. ``runs``: the ways to run a system. Begin with ``runs.system`` (by hand), then ``runs.simulation`` (by a seed),
   ``runs.threads`` and ``runs.exploration`` (every run). ``runs.host`` executes a process and applies the marker rule.
3. ``traces``: ``Trace``, the record of a run: events, recordings, markers.
4. ``cuts``: consistency of cuts of a trace, and the proof that a run could have been in the recorded state.
5. ``predicates``: stable predicates such as termination and deadlock; ``runs.detection`` finds out when one holds.
6. ``runs.observed_node``, ``runs.observed_system``, ``runs.observed_threads``: the variant with an observer.
7. ``diagrams``: space-time diagrams of a trace, as text and SVG.

The package uses these engine modules: ``protocol.markers`` (the marker rule), ``protocol.events`` and
``protocol.actions`` (its vocabulary), and ``background`` (threads). The engine uses the package in
``runtime/job/checkpoint_state.py``: the state of a job at a checkpoint is a ``GlobalState``, so predicates apply to it.
``docs/processes.md`` is the guide.
"""
