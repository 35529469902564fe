"""The one model of a training job behind everything that is simulated.

``timeline`` says what a job does when. ``activity`` turns that into exact totals over time, for
counters that a simulated node shows (``simulated_node``); ``workload`` into levels second by
second, for the samples of simulated cases (``simulator``). What a fault does to the job is written
into the timeline; what it does to one node is the adapter's.
"""
