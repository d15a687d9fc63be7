/** The stream to the sidecar: opens it, resumes it until that succeeds, and closes it. */
import { readFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import type { Certificates, Channel } from './channel.js';
import { isEncrypted, type Settings } from './options.js';
import type { Done, Ending, Response, Stream } from './protocol.js';
import { timing } from './timing.js';
import type { Window } from './window.js';

/** How often in a row the sidecar may find what is sent too much; then it is so for good. */
const MOST_REFUSALS = 10;

/** Is notified of a connection's changes. */
export interface ConnectionOwner {
  onOpen(): void;
  onLost(reason: string): void;
  onDone(done: Done): void;
}

/** Sends what the window offers, and passes the outcomes to its owner. */
export class Connection {
  isOpen = false;
  timesOpened = 0;
  /** Why there is no stream; empty while there is one. */
  trouble = '';

  private channel: Channel | undefined;
  private stream: Stream | undefined;
  private isFinishing = false;
  private isStopped = false;
  private isSendScheduled = false;
  private progressedAt = 0;
  /** Why a stream that the sidecar opened cannot be used. */
  private misfit = '';
  private resting: { timer: NodeJS.Timeout; readonly end: () => void } | undefined;

  constructor(
    private readonly settings: Settings,
    private readonly window: Window,
    private readonly owner: ConnectionOwner,
  ) {}

  /** Keeps the stream open until `finish` or `stop`, or until the sidecar refuses it; then returns the reason. */
  async run(): Promise<string> {
    // Loaded lazily: a client that is switched off must not load gRPC.
    const protocol = await import('./protocol.js');
    try {
      return await this.keepOpen(protocol);
    } finally {
      this.channel?.release();
    }
  }

  private async keepOpen(protocol: typeof import('./protocol.js')): Promise<string> {
    let [attempt, refusals] = [0, 0];
    while (!this.isFinishing && !this.isStopped) {
      const [began, opened] = [performance.now(), this.timesOpened];
      const ending = await this.holdStream(protocol);
      if (ending.isFinal) return ending.reason;
      if (!this.isFinishing) this.noteLoss(ending.reason || 'The sidecar ended the stream.');
      // What was sent is refused, not the stream: that may pass, but not for ever.
      const isRefusal = this.timesOpened > opened && ending.reason.startsWith('RESOURCE_EXHAUSTED');
      refusals = isRefusal && this.progressedAt <= began ? refusals + 1 : 0;
      if (refusals >= MOST_REFUSALS) return ending.reason;
      // Keep backing off from a sidecar that opens the stream only to end it.
      const hasLasted = this.timesOpened > opened && performance.now() - began > timing.longestPause;
      attempt = hasLasted || this.progressedAt > began ? 0 : attempt + 1;
      if (!this.isFinishing && !this.isStopped) await this.rest(pause(attempt));
    }
    return '';
  }

  /** There may be something new to send. */
  work(): void {
    // An event waiting for the sidecar keeps the process alive; a pause alone does not.
    this.resting?.timer.ref();
    if (this.isSendScheduled || !this.isOpen) return;
    this.isSendScheduled = true;
    queueMicrotask(() => {
      this.isSendScheduled = false;
      this.send();
    });
  }

  /** Ends the stream cleanly; call it when everything is acknowledged. */
  finish(): void {
    this.isFinishing = true;
    this.stream?.finish();
  }

  /** Ends the stream immediately. */
  stop(): void {
    this.isStopped = true;
    this.stream?.cancel();
    this.resting?.end();
  }

  private async holdStream(protocol: typeof import('./protocol.js')): Promise<Ending> {
    let timedOut = '';
    this.misfit = '';
    try {
      const certificates = await readCertificates(this.settings);
      if (this.isStopped) return { reason: '', isFinal: false };
      const open = protocol.encodeOpen(this.settings, this.window.acknowledgedSequence);
      // Kept between attempts, so that all streams wait for the same next connection.
      const channel = protocol.shareChannel(this.settings.address, certificates);
      this.channel?.release();
      this.channel = channel;
      const stream = new protocol.Stream(
        channel,
        (response) => this.take(response),
        () => this.work(),
      );
      this.stream = stream;
      const timer = setTimeout(() => {
        if (this.isOpen) return;
        timedOut = `The sidecar did not answer within ${timing.open / 1000} s.`;
        channel.retire();
        stream.cancel();
      }, timing.open);
      stream.send(open);
      const ending = await stream.ended;
      clearTimeout(timer);
      const own = timedOut || this.misfit;
      return own ? { reason: own, isFinal: false } : ending;
    } catch (error) {
      return { reason: String(error), isFinal: false };
    } finally {
      this.stream = undefined;
      this.isOpen = false;
    }
  }

  private take(response: Response): void {
    if (!this.isOpen) {
      if (response.kind !== 'opened') throw new Error('the first response does not open the stream');
      this.open(response);
    } else if (response.kind === 'acknowledged') {
      this.progressedAt = performance.now();
      this.window.acknowledge(response.sequence);
      this.owner.onDone(response.done);
    } else if (response.kind === 'granted') {
      this.window.grant(response.credits);
    }
    this.work();
  }

  private open(response: Response & { kind: 'opened' }): void {
    const canGoOn = this.window.open(response.sequence, response.credits);
    if (!canGoOn) {
      this.misfit = 'The sidecar takes smaller batches than before.';
      this.owner.onDone(response.done);
      this.stream?.cancel();
      return;
    }
    this.isOpen = true;
    this.timesOpened += 1;
    this.trouble = '';
    this.owner.onOpen();
    this.owner.onDone(response.done);
  }

  private send(): void {
    const { stream } = this;
    // What waits here, rather than in the stream, becomes larger batches.
    while (this.isOpen && stream?.hasRoom) {
      const request = this.window.next();
      if (!request) return;
      stream.send(request);
    }
  }

  private noteLoss(reason: string): void {
    // Reported once per loss, not once per attempt.
    const isNew = !this.trouble;
    this.trouble = reason;
    if (isNew && !this.isStopped) this.owner.onLost(reason);
  }

  /** Waits, and then for a connection if the last attempt to make one failed, but not much longer. */
  private rest(milliseconds: number): Promise<void> {
    return new Promise((resolve) => {
      let forget: (() => void) | undefined;
      const end = () => {
        forget?.();
        clearTimeout(this.resting?.timer);
        this.resting = undefined;
        resolve();
      };
      const wait = (then: () => void, delay: number) => {
        const timer = setTimeout(then, delay);
        return this.window.isHolding ? timer : timer.unref();
      };
      const awaitConnection = () => {
        this.resting = { timer: wait(end, timing.longestPause), end };
        if (this.channel) forget = this.channel.whenUsable(end);
        else end();
      };
      this.resting = { timer: wait(awaitConnection, milliseconds), end };
    });
  }
}

function pause(attempt: number): number {
  return Math.random() * Math.min(timing.longestPause, timing.firstPause * 2 ** Math.min(attempt, 10));
}

function files({ tlsCaFile, tlsKeyFile, tlsCertFile }: Settings): [string, string, string] {
  return [tlsCaFile, tlsKeyFile, tlsCertFile];
}

/** Throws if one of the TLS files cannot be read; the error names its option. */
export function checkFiles(settings: Settings): void {
  for (const name of ['tlsCaFile', 'tlsCertFile', 'tlsKeyFile'] as const) {
    try {
      if (settings[name]) readFileSync(settings[name]);
    } catch (error) {
      throw Object.assign(error as Error, { message: `${name}: ${(error as Error).message}.` });
    }
  }
}

/** Read again for every stream, so that certificates can be replaced while the producer runs. */
async function readCertificates(settings: Settings): Promise<Certificates | undefined> {
  if (!isEncrypted(settings)) return undefined;
  const [ca, key, cert] = files(settings).map((file) => (file ? readFile(file) : null));
  return { ca: (await ca) ?? null, key: (await key) ?? null, cert: (await cert) ?? null };
}
