"""The types that everything else uses: blocks, accumulators, methods, models; and linear algebra."""
