"""Time: a controller that sleeps, stutters, or whose requests come from another time."""

from campaign.perturbations import perturbation


@perturbation("asleep", seconds=[1, 5, 15])
def asleep(stage, seconds):
    """The process stops and goes on, as when its machine was suspended: everything that it knew is old."""
    sleeper = stage.pause()
    stage.wait(seconds)
    stage.resume(sleeper)


@perturbation("stutters", times=[4, 8], seconds=[0.3, 1.2])
def stutters(stage, times, seconds):
    """It gets too little of its machine: stops between any two of its steps."""
    for _ in range(times):
        sleeper = stage.pause()
        stage.wait(seconds)
        stage.resume(sleeper)
        stage.wait(0.2)
