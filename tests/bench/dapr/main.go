// Dapr's sidecar with the few components that the comparison needs; it takes the options of the original.
package main

import (
	"context"
	"log"
	"os"

	"github.com/dapr/components-contrib/nameresolution/nameformat"
	"github.com/dapr/components-contrib/pubsub/jetstream"
	"github.com/dapr/components-contrib/pubsub/kafka"
	"github.com/dapr/components-contrib/pubsub/redis"
	"github.com/dapr/dapr/cmd/daprd/options"
	"github.com/dapr/dapr/pkg/components/nameresolution"
	"github.com/dapr/dapr/pkg/components/pubsub"
	"github.com/dapr/dapr/pkg/healthz"
	"github.com/dapr/dapr/pkg/metrics"
	"github.com/dapr/dapr/pkg/modes"
	"github.com/dapr/dapr/pkg/runtime"
	"github.com/dapr/dapr/pkg/runtime/registry"
	"github.com/dapr/dapr/pkg/security"
	"github.com/dapr/kit/concurrency"
	"github.com/dapr/kit/logger"
	"github.com/dapr/kit/signals"
	"go.opencensus.io/stats/view"
)

// Made before the options are read, so that the level which they set holds for these too.
var (
	ofRuntime = logger.NewLogger("dapr.runtime")
	ofContrib = logger.NewLogger("dapr.contrib")
)

func main() {
	log.SetFlags(0)
	given, err := options.New(os.Args[1:])
	if err != nil {
		log.Fatal(err)
	}
	if err := logger.ApplyOptionsToLoggers(&given.Logger); err != nil {
		log.Fatal(err)
	}
	if err := run(signals.Context(), given); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, given *options.Options) error {
	health := healthz.New()
	provider, err := security.New(ctx, security.Options{
		Mode:                    modes.DaprMode(given.Mode),
		AppID:                   given.AppID,
		ControlPlaneTrustDomain: given.ControlPlaneTrustDomain,
		ControlPlaneNamespace:   given.ControlPlaneNamespace,
		Healthz:                 health,
	})
	if err != nil {
		return err
	}
	serve := func(ctx context.Context) error {
		handler, err := provider.Handler(ctx)
		if err != nil {
			return err
		}
		dapr, err := runtime.FromConfig(ctx, configuration(given, handler, health))
		if err != nil {
			return err
		}
		return dapr.Run(ctx)
	}
	return concurrency.NewRunnerManager(provider.Run, serve).Run(ctx)
}

// configuration has what the comparison sets, and the defaults of what cannot be left out.
func configuration(given *options.Options, handler security.Handler, health healthz.Healthz) *runtime.Config {
	return &runtime.Config{
		AppID:                         given.AppID,
		Mode:                          given.Mode,
		Config:                        given.Config,
		ResourcesPath:                 given.ResourcesPath,
		AllowedOrigins:                given.AllowedOrigins,
		AppProtocol:                   given.AppProtocol,
		AppChannelAddress:             given.AppChannelAddress,
		AppHealthProbeInterval:        given.AppHealthProbeInterval,
		AppHealthProbeTimeout:         given.AppHealthProbeTimeout,
		AppHealthThreshold:            given.AppHealthThreshold,
		AppMaxConcurrency:             given.AppMaxConcurrency,
		ActorsDisseminationTimeout:    given.ActorsDisseminationTimeout,
		DaprHTTPPort:                  given.DaprHTTPPort,
		DaprAPIGRPCPort:               given.DaprAPIGRPCPort,
		DaprInternalGRPCPort:          given.DaprInternalGRPCPort,
		DaprAPIListenAddresses:        given.DaprAPIListenAddresses,
		DaprInternalGRPCListenAddress: given.DaprInternalGRPCListenAddress,
		SchedulerStreams:              given.SchedulerJobStreams,
		ProfilePort:                   given.ProfilePort,
		MaxRequestSize:                given.MaxRequestSize,
		ReadBufferSize:                given.ReadBufferSize,
		DaprGracefulShutdownSeconds:   given.DaprGracefulShutdownSeconds,
		Metrics: metrics.Options{
			Enabled: given.Metrics.Enabled(),
			Log:     ofRuntime,
			Port:    given.Metrics.Port(),
			Healthz: health,
			Meter:   view.NewMeter(),
		},
		Registry: registry.NewOptions().WithPubSubs(brokers()).WithNameResolutions(names()),
		Security: handler,
		Healthz:  health,
	}
}

func brokers() *pubsub.Registry {
	brokers := pubsub.NewRegistry()
	brokers.Logger = ofContrib
	brokers.RegisterComponent(redis.NewRedisStreams, "redis")
	brokers.RegisterComponent(jetstream.NewJetStream, "jetstream")
	brokers.RegisterComponent(kafka.NewKafka, "kafka")
	return brokers
}

// names has a way to find other sidecars, because there must be one: this one asks no network.
func names() *nameresolution.Registry {
	names := nameresolution.NewRegistry()
	names.Logger = ofContrib
	names.RegisterComponent(nameformat.NewResolver, "nameformat")
	return names
}
