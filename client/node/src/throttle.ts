/** Runs an action soon after it is requested, but at most once per interval. */
export class Throttle {
  private nextTime = 0;
  private timer: NodeJS.Timeout | undefined;

  constructor(
    private readonly interval: number,
    private readonly action: () => void,
  ) {}

  /** Runs the action as soon as the interval allows. */
  ask(): void {
    // Does not keep the process alive: `close` reports what is left.
    this.timer ??= setTimeout(() => this.run(), Math.max(0, this.nextTime - performance.now())).unref();
  }

  /** Runs the action now if it was requested and has not run yet. */
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
