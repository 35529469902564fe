"""The addresses that a demo that stays up ends with."""

from __future__ import annotations

import re
from urllib.parse import unquote

from peerwatch_demo.stack.tour import Servers, tour, tour_of_several


def test_five_addresses_each_with_what_is_there() -> None:
    text = tour(Servers("http://d:1/", "http://p:2", "http://a:3"), "team/job 1", "node-5")

    urls = re.findall(r"http://\S+", text)
    assert ["d:1", "d:1", "d:1", "p:2", "a:3"] == [url.split("/")[2] for url in urls]
    assert "http://d:1/jobs/team/job%201" in urls
    assert "http://d:1/nodes/node-5" in urls
    assert 'peerwatch_fault_score{job_id="team/job 1"}' in unquote(urls[3])
    assert 11 == len(text.splitlines())


def test_three_faults_have_the_fleet_three_jobs_and_the_alerts() -> None:
    faults = [("a", "gpu-1", "pfc_storm"), ("team/b", "gpu-2", "hung_rank"), ("c", "gpu-3", "x")]
    text = tour_of_several(Servers("http://d:1/", "http://p:2", "http://a:3"), faults)

    urls = re.findall(r"http://\S+", text)
    jobs = ["http://d:1/jobs/a", "http://d:1/jobs/team/b", "http://d:1/jobs/c"]
    assert ["http://d:1/", *jobs] == urls[:4]
    assert 5 == len(urls)
    assert "gpu-2: hung_rank" in text
