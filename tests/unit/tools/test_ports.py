"""Ports for test servers: test processes run at once, and must not meet on one."""

from __future__ import annotations

import socket

import pytest
from servers import HOST, PORTS, PortBlock


def test_two_processes_never_deal_the_same_port() -> None:
    one, other = PortBlock(), PortBlock()
    try:
        dealt = [{block.free(1) for _ in range(600)} for block in (one, other)]
        assert not dealt[0] & dealt[1]
        assert all(port in PORTS for port in dealt[0] | dealt[1])
    finally:
        one.release()
        other.release()


def test_a_block_that_was_released_can_be_claimed_again() -> None:
    for _ in range(100):
        PortBlock().release()


def test_a_port_that_was_dealt_comes_back_only_after_all_others() -> None:
    block = PortBlock()
    try:
        first = [block.free(1) for _ in range(200)]
        assert len(set(first)) == 200
    finally:
        block.release()


def test_adjacent_ports_are_free_all_of_them() -> None:
    block = PortBlock()
    try:
        before = block.free(1)
        with socket.socket() as taken:
            taken.bind((HOST, before + 2))
            taken.listen()
            assert block.free(2) == before + 3
        assert block.free(1) == before + 5
    finally:
        block.release()


def test_a_block_that_is_full_is_an_error() -> None:
    block = PortBlock()
    try:
        with pytest.raises(RuntimeError, match="no 250 adjacent ports"):
            block.free(250)
    finally:
        block.release()
