"""What a process that was asked for its stacks has told."""

import os

from loader.process.stacks import innermost_calls, process_state

_TOLD = """a line of something else
Thread 0x00007f1 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 331 in wait
  File "/usr/lib/python3.11/threading.py", line 629 in wait

Current thread 0x00007f2 (most recent call first):
  File "/usr/lib/python3.11/site-packages/av/codec.py", line 12 in <listcomp>
  File "/home/a b/loader/decode/decode_frames.py", line 120 in decode
  File "/home/a b/loader/stream.py", line 141 in _fill
  File "/home/a b/loader/stream.py", line 100 in stream_batches
  File "<frozen runpy>", line 88 in _run_code

Extension modules: numpy
"""


def test_the_innermost_calls_of_the_main_thread_are_named() -> None:
    assert innermost_calls(_TOLD) == (
        "<listcomp> (codec.py:12) of decode (decode_frames.py:120) of _fill (stream.py:141) of"
        " stream_batches (stream.py:100)"
    )


def test_where_a_thread_of_native_code_was_asked_the_last_one_is_the_main_one() -> None:
    told = _TOLD.replace("Current thread", "Thread")
    assert innermost_calls(told) == innermost_calls(_TOLD)


def test_of_several_answers_the_last_counts() -> None:
    later = _TOLD.replace("decode_frames.py", "else.py")
    assert "else.py:120" in innermost_calls(_TOLD + later)


def test_who_told_nothing_is_in_no_call() -> None:
    assert innermost_calls("") == ""
    assert innermost_calls("Warning: something\n") == ""


def test_the_state_of_a_process_is_the_kernel_s() -> None:
    assert process_state(os.getpid()).startswith("R ")
    assert process_state(1 << 30) == "unknown"
