//! Inference engine: scheduler, queues, caches, models, sampler.
