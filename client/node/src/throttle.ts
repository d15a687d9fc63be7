/** Runs an action soon after it is asked for, but at most once in each interval. */
export class Throttle {
  private nextTime = 0;
  private timer: NodeJS.Timeout | undefined;

  constructor(
    private readonly interval: number,
    private readonly action: () => void,
  ) {}

  /** Runs the action as soon as it may run. */
  ask(): void {
    // What is left unsaid when the process ends is told by closing.
    this.timer ??= setTimeout(() => this.run(), Math.max(0, this.nextTime - performance.now())).unref();
  }

  /** Runs the action now if it was asked for, and never again by itself. */
  finish(): void {
    if (this.timer) {
      clearTimeout(this.timer);
      this.run();
    }
  }

  private run(): void {
    this.timer = undefined;
    this.nextTime = performance.now() + this.interval;
    this.action();
  }
}
