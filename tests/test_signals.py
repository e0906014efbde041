"""How a signal ends a process."""

import ctypes
import signal
import threading

import pytest

from plmcl import signals
from plmcl.signals import exit_if_told, exit_on_sigterm, hold_signals

pytestmark = pytest.mark.usefixtures("signals_end")


def ends_with_143(signum, frame):
    raise SystemExit(143)


@pytest.mark.parametrize(
    ("number", "ending"), [(signal.SIGTERM, SystemExit), (signal.SIGINT, KeyboardInterrupt)]
)
def test_a_signal_acts_after_the_body_and_not_within_it(number, ending):
    signal.signal(signal.SIGTERM, ends_with_143)
    done = []

    def body():
        with hold_signals():
            signal.raise_signal(number)
            done.append("the rest of the body")

    with pytest.raises(ending):
        body()
    assert done
    assert signal.getsignal(signal.SIGTERM) is ends_with_143
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_without_a_signal_nothing_happens_and_an_error_goes_through():
    signal.signal(signal.SIGTERM, ends_with_143)
    with pytest.raises(ValueError, match="of the body"), hold_signals():
        raise ValueError("of the body")
    assert signal.getsignal(signal.SIGTERM) is ends_with_143


def test_ctrl_c_that_is_pressed_twice_acts_at_once():
    done = []

    def body():
        with hold_signals():
            signal.raise_signal(signal.SIGINT)
            done.append("after the first")
            signal.raise_signal(signal.SIGINT)
            done.append("after the second")

    with pytest.raises(KeyboardInterrupt):
        body()
    assert done == ["after the first"]


def test_sigterm_that_comes_twice_within_the_body_acts_once_after_it():
    seen = []
    signal.signal(signal.SIGTERM, lambda *_: seen.append("acts"))
    with hold_signals():
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        seen.append("the rest of the body")
    assert seen == ["the rest of the body", "acts"]


def test_sigterm_that_comes_during_closing_is_not_put_off_until_after_it(monkeypatch):
    with pytest.raises(SystemExit):
        signal.raise_signal(signal.SIGTERM)
    with hold_signals():
        signal.raise_signal(signal.SIGTERM)
        monkeypatch.setattr(signals, "SECONDS_TO_CLOSE", 0.0)  # the body took that long


def test_sigterm_exits_once_and_again_when_closing_takes_too_long(monkeypatch):
    with pytest.raises(SystemExit) as ended:
        signal.raise_signal(signal.SIGTERM)
    assert ended.value.code == 128 + signal.SIGTERM
    signal.raise_signal(signal.SIGTERM)  # what closes is not broken into
    monkeypatch.setattr(signals, "SECONDS_TO_CLOSE", 0.0)
    with pytest.raises(SystemExit):
        signal.raise_signal(signal.SIGTERM)


class AsksForMore:
    """An object whose missing attributes are looked up in Python, as those of an `nn.Module`."""

    def __getattr__(self, name):
        signal.raise_signal(signal.SIGTERM)
        return name


def test_a_sigterm_whose_exit_code_in_c_drops_is_told_again_case_66():
    exit_if_told()  # nothing came
    has_attribute = ctypes.pythonapi.PyObject_HasAttr
    has_attribute.argtypes = (ctypes.py_object, ctypes.py_object)
    assert has_attribute(AsksForMore(), "hooks") == 0  # SystemExit came out of it, and was cleared
    with pytest.raises(SystemExit) as ended:
        exit_if_told()
    assert ended.value.code == 128 + signal.SIGTERM
    exit_on_sigterm()
    exit_if_told()  # another command of this process


def test_another_thread_changes_no_handler():
    signal.signal(signal.SIGTERM, ends_with_143)
    seen = []

    def work():
        with hold_signals():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [ends_with_143]
