/** Connections to sidecars, each shared by all streams of the process that can use it. */
import * as grpc from '@grpc/grpc-js';
import { timing } from './timing.js';

const OPTIONS: grpc.ChannelOptions = {
  // Detects within half a minute that the peer is gone.
  'grpc.keepalive_time_ms': 20_000,
  'grpc.keepalive_timeout_ms': 10_000,
  // Both sides limit events and credits already.
  'grpc.max_send_message_length': -1,
  'grpc.max_receive_message_length': -1,
  // The sidecar is local: ignore proxies from the environment and service configuration from the DNS.
  'grpc.enable_http_proxy': 0,
  'grpc.service_config_disable_resolution': 1,
  // Otherwise a new channel would inherit the back-off of the last one. Retries are ours, too.
  'grpc.use_local_subchannel_pool': 1,
  'grpc.enable_retries': 0,
};

/** The current contents of the TLS files. */
export interface Certificates {
  readonly ca: Buffer | null;
  readonly key: Buffer | null;
  readonly cert: Buffer | null;
}

const channels = new Map<string, Channel>();

/** One HTTP/2 connection, made again when it is lost. Whoever takes it with `shareChannel` releases it once. */
export class Channel {
  readonly client: grpc.Client;
  private users = 0;
  private isRetired = false;
  private isWatching = false;
  private readonly waiting = new Set<() => void>();

  constructor(
    private readonly name: string,
    address: string,
    certificates: Certificates | undefined,
  ) {
    const credentials = certificates
      ? grpc.credentials.createSsl(certificates.ca, certificates.key, certificates.cert)
      : grpc.credentials.createInsecure();
    this.client = new grpc.Client(address, credentials, {
      ...OPTIONS,
      'grpc.initial_reconnect_backoff_ms': timing.firstPause,
      'grpc.max_reconnect_backoff_ms': timing.longestPause,
    });
  }

  share(): this {
    this.users += 1;
    return this;
  }

  release(): void {
    this.users -= 1;
    if (this.users) return;
    this.retire();
    this.client.close();
  }

  /** Nothing comes over this connection: whoever shares next gets another one. */
  retire(): void {
    if (!this.isRetired) channels.delete(this.name);
    this.isRetired = true;
  }

  /**
   * Calls back as soon as a stream may be opened: at once, or when a new connection is made after the last attempt
   * failed. Returns a function that takes the request back.
   */
  whenUsable(callback: () => void): () => void {
    this.waiting.add(callback);
    this.watch();
    return () => this.waiting.delete(callback);
  }

  private watch(): void {
    if (this.isWatching) return;
    const channel = this.client.getChannel();
    const state = channel.getConnectivityState(true);
    if (state !== grpc.connectivityState.TRANSIENT_FAILURE) {
      const callbacks = [...this.waiting];
      this.waiting.clear();
      for (const callback of callbacks) callback();
      return;
    }
    this.isWatching = true;
    channel.watchConnectivityState(state, Number.POSITIVE_INFINITY, () => {
      this.isWatching = false;
      this.watch();
    });
  }
}

/** Returns the connection for this address and these certificates. */
export function shareChannel(address: string, certificates: Certificates | undefined): Channel {
  const { ca, key, cert } = certificates ?? {};
  const name = JSON.stringify([
    address,
    !certificates,
    ...[ca, key, cert].map((each) => each?.toString('base64')),
  ]);
  let channel = channels.get(name);
  if (!channel) {
    channel = new Channel(name, address, certificates);
    channels.set(name, channel);
  }
  return channel.share();
}
