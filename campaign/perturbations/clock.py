"""Time: a controller that sleeps or stutters, or whose clock is wrong."""

from campaign.perturbations import perturbation


@perturbation("asleep", seconds=[1, 5, 15])
def asleep(runner, seconds):
    """The process stops and continues, as when its machine was suspended: everything that it knew is old."""
    sleeper = runner.pause()
    runner.wait(seconds)
    runner.resume(sleeper)


@perturbation("stutters", times=[4, 8], seconds=[0.3, 1.2])
def stutters(runner, times, seconds):
    """It gets too little of its machine: stops between any two of its steps."""
    for _ in range(times):
        sleeper = runner.pause()
        runner.wait(seconds)
        runner.resume(sleeper)
        runner.wait(0.2)


@perturbation("clock jumps", by=[-45, -10, 10, 45], seconds=[3, 10])
def clock_jumps(runner, by, seconds):
    """The machine's clock is set, and some time later set right: waits end early or late. It stays below the drain of a deletion."""
    runner.clock.move(by)
    runner.undo(lambda: runner.clock.move(0), after=seconds)
