module bronze/bench/raw

go 1.26.0

require (
	github.com/nats-io/nats.go v1.53.1
	github.com/redis/go-redis/v9 v9.23.0
	github.com/twmb/franz-go v1.22.2
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/klauspost/compress v1.20.3 // indirect
	github.com/nats-io/nkeys v0.4.15 // indirect
	github.com/nats-io/nuid v1.0.1 // indirect
	github.com/pierrec/lz4/v4 v4.1.33 // indirect
	github.com/twmb/franz-go/pkg/kmsg v1.15.0 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	golang.org/x/crypto v0.49.0 // indirect
	golang.org/x/sys v0.48.0 // indirect
)
